// Package real runs stages of the bus by the clock on the wall, where the
// processors are part of the matter: handlers that compute, neighbours that
// take the processors away, and settings that change under load. It also
// measures what decisions cost.
//
// Such figures are those of one machine at one time. Every part therefore
// measures what the machine can do just before, says how steady that was, and
// runs the laws in turns.
package real
