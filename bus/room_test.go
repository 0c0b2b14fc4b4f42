package bus_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bus"
	"github.com/sedabus/seda/bustest"
)

func TestAwaitRoomTellsOfRoomWithoutPublishing(t *testing.T) {
	for _, full := range []bus.FullPolicy{bus.Block, bus.Reject, bus.DropNewest} {
		bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
			gate := bustest.NewGate()
			s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 2, Full: full}, gate.Handler(nil))
			bustest.Start(t, b)
			for range 3 {
				require.NoError(t, s.AwaitRoom(t.Context()))
				require.NoError(t, s.TryPublish(&bus.Envelope{}))
				synctest.Wait()
			}
			var told atomic.Int32
			for range 4 {
				go func() {
					if s.AwaitRoom(t.Context()) == nil {
						told.Add(1)
					}
				}()
				synctest.Wait()
			}
			require.Zero(t, told.Load())
			gate.Pass(1)
			time.Sleep(5 * time.Millisecond) // a stage of fast handlers tells with some delay
			synctest.Wait()
			require.EqualValues(t, 4, told.Load(), "all look again: it reserves nothing")
			require.NoError(t, s.TryPublish(&bus.Envelope{}))
			require.Error(t, s.TryPublish(&bus.Envelope{}))
			gate.Open()
		})
	}
}

func TestAwaitRoomEnds(t *testing.T) {
	bustest.Run(t, bus.Config{}, func(t *testing.T, b *bus.Bus) {
		s := bustest.Stage(t, b, "s", bus.StageConfig{Capacity: 1, NoHandler: bus.NoHandlerHold}, nil)
		bustest.Start(t, b)
		require.NoError(t, s.TryPublish(&bus.Envelope{}))
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 2)
		go func() { ended <- s.AwaitRoom(ctx) }()
		synctest.Wait()
		cancel(why)
		require.ErrorIs(t, <-ended, context.Canceled)
		go func() { ended <- s.AwaitRoom(t.Context()) }()
		synctest.Wait()
		require.Error(t, b.Close())
		require.ErrorIs(t, <-ended, bus.ErrClosed)
		require.ErrorIs(t, s.AwaitRoom(t.Context()), bus.ErrClosed)
		require.ErrorIs(t, s.AwaitRoom(nil), bus.ErrInvalid) //nolint:staticcheck // what a nil context gets
	})
}
