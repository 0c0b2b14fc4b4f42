package law

func ours() []Row { return nil }
