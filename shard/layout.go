package shard

import "github.com/sedabus/seda/internal/layout"

// MaxShards is the largest number of shards of a Layout.
const MaxShards = layout.MaxShards

// Layout says which of n shards a key belongs to. It depends on n alone, so it
// is the same in every process and after every series of changes. Going from m
// to m+1 shards moves keys to the new shard only, and the shards' parts of the
// hashes differ by at most one in 4,096. It is immutable and safe for concurrent
// use.
type Layout = layout.Layout

// NewLayout returns the layout of n shards, with n held to 1 to [MaxShards].
func NewLayout(n int) *Layout { return layout.NewLayout(n) }

// Hash returns the hash of a key: FNV-1a of 64 bits with the final mix of
// MurmurHash3, and never 0, which stands for no key. It is stable: the same for
// ever, in every process. It keeps out nobody who chooses keys so that they fall on
// one shard.
func Hash(key string) uint64 { return layout.Hash(key) }

// HashUint64 is [Hash] of a number, for keys that are numbers.
func HashUint64(key uint64) uint64 { return layout.HashUint64(key) }
