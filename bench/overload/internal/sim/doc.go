// Package sim is a discrete-event simulation of stages under open-loop load.
//
// One goroutine works off events in the order of their times. Arrivals follow a
// schedule that does not know what became of earlier ones; a job's arrival
// time, class, sender and service times are functions of the seed and the job's
// number, so that every admission law meets the same work. Waits count from the
// intended arrival.
//
// With a sleeper the simulation sleeps to each event, which inside a bubble of
// testing/synctest makes package time agree with it: laws that read the clock
// themselves then live in the simulated time too.
package sim
