package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// diffTexts is the difference of two texts in unified form. JSON in one line is laid out first, so that it has lines.
func diffTexts(nameA, nameB string, a, b []byte) []byte {
	if bytes.Equal(a, b) {
		return []byte("no difference\n")
	}
	if !bytes.ContainsRune(bytes.TrimSpace(a), '\n') || !bytes.ContainsRune(bytes.TrimSpace(b), '\n') {
		a, b = layOut(a), layOut(b)
	}
	linesA, linesB := splitLines(a), splitLines(b)
	out := fmt.Appendf(nil, "--- %s\n+++ %s\n", nameA, nameB)
	return appendHunks(out, linesA, linesB, lineEdits(linesA, linesB))
}

func layOut(b []byte) []byte {
	var out bytes.Buffer
	if json.Indent(&out, b, "", "  ") != nil {
		return b
	}
	return out.Bytes()
}

func splitLines(b []byte) []string {
	return slices.Collect(strings.Lines(string(b)))
}

// lineChange says that lines a[fromA:toA] became b[fromB:toB].
type lineChange struct{ fromA, toA, fromB, toB int }

// lineEdits are the changes between two lists of lines: the fewest (Myers, "An O(ND) Difference Algorithm", 1986), unless
// more than maxEdits lines differ; what differs is then one change.
func lineEdits(a, b []string) []lineChange {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	a, b = a[head:len(a)-tail], b[head:len(b)-tail]
	n, m := len(a), len(b)
	most := min(n+m, maxEdits)
	v := make([]int32, 2*most+2) // v[most+k]: how far a path on diagonal k has come in a
	var trace [][]int32          // v[most-d:most+d+1] before step d
	for d := 0; d <= most; d++ {
		trace = append(trace, slices.Clone(v[most-d:most+d+1]))
		for k := -d; k <= d; k += 2 {
			x := 0
			switch {
			case d == 0:
			case k == -d || k != d && v[most+k-1] < v[most+k+1]:
				x = int(v[most+k+1])
			default:
				x = int(v[most+k-1]) + 1
			}
			for x < n && x-k < m && x-k >= 0 && a[x] == b[x-k] {
				x++
			}
			v[most+k] = int32(x)
			if x >= n && x-k >= m {
				return backtrack(trace, n, m, head)
			}
		}
	}
	return []lineChange{{head, head + n, head, head + m}}
}

// backtrack follows the shortest path back from its end and joins its steps to changes.
func backtrack(trace [][]int32, x, y, head int) (out []lineChange) {
	for d := len(trace) - 1; d > 0; d-- {
		before := func(k int) int { // step d
			if k < -d || k > d {
				return -1
			}
			return int(trace[d][d+k])
		}
		k := x - y
		prev := k - 1
		if k == -d || k != d && before(k-1) < before(k+1) {
			prev = k + 1
		}
		px := before(prev)
		py := px - prev
		c := lineChange{px + head, px + head, py + head, py + head}
		if prev == k+1 {
			c.toB++
		} else {
			c.toA++
		}
		if len(out) > 0 && out[len(out)-1].fromA == c.toA && out[len(out)-1].fromB == c.toB {
			c.toA, c.toB = out[len(out)-1].toA, out[len(out)-1].toB
			out = out[:len(out)-1]
		}
		out = append(out, c)
		x, y = px, py
	}
	slices.Reverse(out)
	return out
}

// appendHunks writes changes with three lines of context.
func appendHunks(out []byte, a, b []string, changes []lineChange) []byte {
	const context = 3
	add := func(sign byte, lines []string) {
		for _, l := range lines {
			out = append(append(out, sign), l...)
			if !strings.HasSuffix(l, "\n") {
				out = append(out, "\n\\ No newline at end\n"...)
			}
		}
	}
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].fromA-changes[n-1].toA <= 2*context {
			n++
		}
		first, last := changes[0], changes[n-1]
		before := min(context, first.fromA)
		after := min(context, len(a)-last.toA)
		fromA, toA, fromB, toB := first.fromA-before, last.toA+after, first.fromB-before, last.toB+after
		out = fmt.Appendf(out, "@@ -%s +%s @@\n", hunkRange(fromA, toA), hunkRange(fromB, toB))
		at := fromA
		for _, c := range changes[:n] {
			add(' ', a[at:c.fromA])
			add('-', a[c.fromA:c.toA])
			add('+', b[c.fromB:c.toB])
			at = c.toA
		}
		add(' ', a[at:toA])
		changes = changes[n:]
	}
	return out
}

// hunkRange is "line,count" of a hunk; an empty one names the line before it.
func hunkRange(from, to int) string {
	if from == to {
		return fmt.Sprintf("%d,0", from)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}
