//go:build !race

package form_test

const raceEnabled = false
