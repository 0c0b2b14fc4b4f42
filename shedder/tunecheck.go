package shedder

import "fmt"

// CheckTune returns the settings that Tune would put into force, and the error
// that it would return. It changes nothing.
func (s *Shedder) CheckTune(change func(*Config)) (Config, error) {
	if change == nil {
		return Config{}, fmt.Errorf("%w: Tune without a function", ErrInvalid)
	}
	c := s.Config()
	change(&c)
	c = c.clone()
	if err := c.validate(); err != nil {
		return c, err
	}
	_, err := NewAdaptive(c.Adaptive)
	return c, err
}
