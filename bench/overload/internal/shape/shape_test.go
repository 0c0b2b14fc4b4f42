package shape_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sedabus/seda/bench/overload/internal/shape"
	"github.com/sedabus/seda/bench/overload/internal/sim"
)

// Every scenario can be built at every scale, and looks at a stretch of its
// schedule that is long enough for its unit.
func TestScenariosAreWellFormed(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, sh := range shape.All() {
		require.False(t, names[sh.Name], "%s is there twice", sh.Name)
		names[sh.Name] = true
		require.NotEmpty(t, sh.Title)
		for _, sc := range sh.Over(shape.Scales()) {
			s := sh.Make(sc)
			require.Equal(t, sc.Name, s.Name, sh.Name)
			require.GreaterOrEqual(t, s.Len(), 50*s.Unit(), "%s at %s", sh.Name, sc.Name)
			last := s.From
			for i, p := range s.Load {
				require.True(t, i == 0 || p.Until > s.Load[i-1].Until, "%s at %s: piece %d", sh.Name, sc.Name, i)
				last = p.Until
			}
			if s.Times == nil {
				require.LessOrEqual(t, s.To, last, "%s at %s", sh.Name, sc.Name)
			}
			for i, st := range s.Stalls {
				require.Greater(t, st.To, st.From)
				require.True(t, i == 0 || st.From > s.Stalls[i-1].To)
			}
		}
	}
	require.Len(t, shape.Scales(), 6)
}

const someTrace = "TIMESTAMP,ContextTokens,GeneratedTokens\n" +
	"2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:05.9799600,100,30\n2023-11-16 18:17:04.4799600,1,20\n"

func folder(t *testing.T, code, conv string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "azure-llm-code.csv"), []byte(code), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "azure-llm-conv.csv"), []byte(conv), 0o600))
	return dir
}

// A recording is played in order, with sizes in proportion to tokens, and at a
// speed that brings the work of the span to the load asked for.
func TestTracesArePlayedAtTheLoadAskedFor(t *testing.T) {
	t.Parallel()
	all, err := shape.Traces(folder(t, someTrace, someTrace))
	require.NoError(t, err)
	require.Len(t, all, 6)
	s := all[0].Make(sim.Scale{})
	require.Equal(t, []float64{.5, 1, 1.5}, s.Sizes)
	require.Len(t, s.Times, 3)
	require.InDelta(t, .25, float64(s.Times[1])/float64(s.Times[2]), 1e-6)
	work := 3 * s.Service.Seconds() / float64(s.Workers)
	require.InDelta(t, .7, work/s.Len().Seconds(), 1e-3)
	require.Equal(t, "conv-3", all[5].Name)
}

func TestBrokenTracesAreRefused(t *testing.T) {
	t.Parallel()
	_, err := shape.Traces(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, bad := range []string{
		"", "a,b,c\n", "a,b,c\n1,2\n", "a,b,c\nyesterday,1,2\n", "a,b,c\n2023-11-16 18:17:03.9,1,many\n",
		"a,b,c\n2023-11-16 18:17:03.9,1,2\n2023-11-16 18:17:03.9,1,2\n",
	} {
		_, err := shape.Traces(folder(t, someTrace, bad))
		require.Error(t, err, "%q", bad)
		require.Contains(t, err.Error(), "azure-llm-conv.csv")
	}
}
