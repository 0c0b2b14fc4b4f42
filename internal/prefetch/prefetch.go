// Package prefetch asks the processor for memory that will be read soon. It is
// a hint: any address may be given, nothing is read, and nothing happens on
// processors for which there is no form of it here.
package prefetch
