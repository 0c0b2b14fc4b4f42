package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// source is one file, or standard input. The read stage writes its results;
// they are read after the bus has drained.
type source struct {
	path  string // "-" is standard input
	index int    // place among the sources, the first key of the report's order

	lines       uint64 // lines handed to the bus
	err         error  // why reading ended early
	interrupted bool   // reading ended because the run was interrupted
}

// line is the payload of a line's envelope, and of its dead letter, which so
// knows its place. One stage at a time holds it.
type line struct {
	src  *source
	no   uint64 // counted from 1
	text string // without its ending; cut to excerptMax when too long
	size int64  // bytes of the whole line without its ending
	long bool   // size is above the bound
	rec  record // filled in by the parse stage
	why  string // filled in by the parse stage if the line is malformed
}

// Size is what the line costs in the dead-letter store, whose bound in bytes
// counts it.
func (l *line) Size() int { return len(l.text) }

// excerptMax bounds what is kept of a line that is too long to be parsed, and
// what the report shows of a malformed one, in bytes.
const excerptMax = 80

const byteOrderMark = "\ufeff" // of UTF-8

// lineReader cuts a stream into lines with bounded memory. A line ends at a
// line feed or at the end of the stream; one carriage return directly before
// that belongs to the ending, any other is part of the line. A UTF-8 byte
// order mark at the start of the stream is skipped.
type lineReader struct {
	br  *bufio.Reader
	max int
	no  uint64
}

// newLineReader bounds lines to max bytes without their ending.
func newLineReader(r io.Reader, maxLine int) *lineReader {
	// Two bytes more than the bound hold its ending, so that a full buffer
	// always means a line that is too long.
	return &lineReader{br: bufio.NewReaderSize(r, maxLine+2), max: maxLine}
}

// next returns the next line, or io.EOF after the last one. After another
// error what was read of an unfinished line is given up: it may not be a line.
func (r *lineReader) next(ctx context.Context) (line, error) {
	if r.no == 0 {
		if mark, err := r.br.Peek(len(byteOrderMark)); err == nil && string(mark) == byteOrderMark {
			_, _ = r.br.Discard(len(mark)) // it was just peeked at
		}
	}
	chunk, err := r.br.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return r.skip(ctx, chunk)
	}
	if err != nil && (!errors.Is(err, io.EOF) || len(chunk) == 0) {
		return line{}, err
	}
	chunk = trimEnding(chunk)
	r.no++
	l := line{no: r.no, size: int64(len(chunk)), long: len(chunk) > r.max}
	if l.long {
		chunk = chunk[:min(len(chunk), excerptMax)]
	}
	l.text = string(chunk)
	return l, nil
}

// skip reads to the end of a line that filled the buffer, keeping only its
// start.
func (r *lineReader) skip(ctx context.Context, chunk []byte) (line, error) {
	l := line{no: r.no + 1, text: string(chunk[:min(len(chunk), excerptMax)])}
	last := chunk[len(chunk)-1] // a carriage return at a buffer's edge
	l.size = int64(len(chunk))
	for {
		if err := ctx.Err(); err != nil {
			return line{}, err
		}
		chunk, err := r.br.ReadSlice('\n')
		l.size += int64(len(chunk))
		if errors.Is(err, bufio.ErrBufferFull) {
			last = chunk[len(chunk)-1]
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return line{}, err
		}
		ending := len(chunk) - len(trimEnding(chunk))
		if ending == len(chunk) && !bytes.HasPrefix(chunk, []byte("\r")) && last == '\r' {
			ending++ // the line feed came alone in the last chunk, or nothing did
		}
		l.size -= int64(ending)
		l.text = l.text[:min(int64(len(l.text)), l.size)]
		l.long = true
		r.no++
		return l, nil
	}
}

func trimEnding(chunk []byte) []byte {
	chunk = bytes.TrimSuffix(chunk, []byte("\n"))
	return bytes.TrimSuffix(chunk, []byte("\r"))
}

// each calls yield with every line of the source and counts those that it took,
// until the source or the context ends.
func (s *source) each(ctx context.Context, stdin io.Reader, maxLine int, yield func(*line) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	in, err := s.open(ctx, stdin)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it is only read
	lines := newLineReader(in, maxLine)
	for ctx.Err() == nil {
		l, err := lines.next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			l.src = s
			s.lines++
			if err = yield(&l); err != nil {
				s.lines--
			}
		}
		if err != nil {
			return fmt.Errorf("%s, after line %d: %w", s.path, s.lines, err)
		}
	}
	return ctx.Err()
}

// open returns the source's bytes. Reads of anything but a regular file end
// with the context's error when it ends: a pipe or a terminal may stay silent
// for ever, and so may the opening of a named pipe.
func (s *source) open(ctx context.Context, stdin io.Reader) (io.ReadCloser, error) {
	if s.path == "-" {
		return interruptible(ctx, func() (io.ReadCloser, error) { return io.NopCloser(stdin), nil }), nil
	}
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s is a folder: use --dir", s.path)
	}
	if info.Mode().IsRegular() {
		return os.Open(s.path)
	}
	return interruptible(ctx, func() (io.ReadCloser, error) { return os.Open(s.path) }), nil
}

// interruptible copies from what open returns until the context ends. The
// copying goroutine ends with the stream, or with its first read after the
// context's end; one that is stuck in a read ends with the process.
func interruptible(ctx context.Context, open func() (io.ReadCloser, error)) io.ReadCloser {
	pr, pw := io.Pipe()
	stop := context.AfterFunc(ctx, func() { pw.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer stop()
		in, err := open()
		if err == nil {
			_, err = io.Copy(pw, in)
			err = errors.Join(err, in.Close())
		}
		pw.CloseWithError(err)
	}()
	return pr
}

// sources lists the paths, then the regular files directly inside dir in the
// order of their names. With neither it is standard input.
func sources(paths []string, dir string) ([]*source, error) {
	var list []*source
	add := func(path string) { list = append(list, &source{path: path, index: len(list)}) }
	for _, p := range paths {
		add(p)
	}
	if dir == "" {
		if len(list) == 0 {
			add("-")
		}
		return list, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return list, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		// Stat follows links: a mounted folder in a pod is made of them.
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
			continue
		}
		add(path) // one that cannot be looked at is reported when it is opened
	}
	return list, nil
}
