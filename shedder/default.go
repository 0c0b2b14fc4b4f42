package shedder

// Default returns a shedder with the default settings: the adaptive law, on,
// without rails. It is what a bus gives to each of its stages when its
// configuration says NewShedder: shedder.Default. The name of the stage becomes
// the shedder's.
func Default(stage string) *Shedder {
	s, err := New(Config{Name: stage})
	if err != nil { // the name does not fit: then without one
		s, _ = New(Config{}) // the zero Config is valid
	}
	return s
}
