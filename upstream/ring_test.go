package upstream

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestRing(t *testing.T) {
	numbered := func(from, to int) (lines []string) {
		for i := from; i <= to; i++ {
			lines = append(lines, fmt.Sprintf("line %d", i))
		}
		return lines
	}
	repeat := func(s string, n int) []string { return slices.Repeat([]string{s}, n) }
	for _, tt := range []struct {
		name   string
		writes []string
		want   []string
	}{
		{"nothing", nil, nil},
		{"pieces and line ends", []string{"a\r\nb", "b\n", "\nlast"}, []string{"a", "bb", "", "last"}},
		{"invalid UTF-8", []string{"x\xffy\n"}, []string{"x\uFFFDy"}},
		{"the last lines", []string{strings.Join(numbered(1, 1000), "\n")}, numbered(801, 1000)},
		{"a long line is cut", []string{strings.Repeat("a", 2*ringLine+1)}, []string{
			strings.Repeat("a", ringLine), strings.Repeat("a", ringLine), "a"}},
		{"a flood in one piece", []string{strings.Repeat("f", 1<<20)}, repeat(strings.Repeat("f", ringLine), 16)},
		{"a flood in many", slices.Repeat([]string{strings.Repeat("f", 1000)}, 1000), repeat(strings.Repeat("f", ringLine), 16)},
		{"a line without its beginning", []string{strings.Repeat("f", 1<<20), "\nwhole\n"}, []string{"whole"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r ring
			for _, w := range tt.writes {
				if n, err := r.Write([]byte(w)); n != len(w) || err != nil {
					t.Fatalf("write: got %d, %v, want %d", n, err, len(w))
				}
			}
			if got := r.lines(); !slices.Equal(got, tt.want) {
				t.Errorf("got %.200q, want %.200q", got, tt.want)
			}
			if cap(r.buf) > 4*ringBytes {
				t.Errorf("it holds %d bytes", cap(r.buf))
			}
		})
	}
}
