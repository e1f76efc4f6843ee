"""Generated calls of everything public: each is right, refused by name, or a fault of ours."""
