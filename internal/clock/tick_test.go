package clock

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTickThatLostReturnsTheLaterReading(t *testing.T) {
	c := New()
	later := c.Now() + 1<<60 // as if another Tick had come in between
	c.coarse.Store(later)
	assert.Equal(t, later, c.Tick())
	assert.Equal(t, later, c.Coarse())
}
