// Package drain measures how fast a stage gets its work done: the service time,
// the rate of departures while it always has work, and from both the drain
// rate. The shedder and the credits of a stage both go by it, so that they
// agree on what the stage can do.
//
// Its types are for one goroutine at a time and take the time as an argument.
package drain
