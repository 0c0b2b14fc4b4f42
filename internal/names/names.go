// Package names holds the one alphabet for the names of stages. A name that
// passes can be used, unescaped, as a file name on every common system, as the
// value of a metric label and as a segment of a URL path.
package names

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxLen is the greatest length of a name in bytes.
const MaxLen = 128

// shown is how much of a bad name an error quotes, in bytes.
const shown = 40

// Check returns nil if name may name a stage, else an error that tells the
// rule, where the name breaks it, and the name itself, quoted and shortened to
// 40 bytes. The rules:
//
//   - 1 to [MaxLen] bytes;
//   - ASCII letters, digits, '_', '-' and '.' only;
//   - a letter or digit first, no '.' last, no "..";
//   - no device name of Windows (CON, PRN, AUX, NUL, COM0 to COM9, LPT0 to
//     LPT9, in any case), not even as the part before the first '.'.
//
// Names are case-sensitive. Where names become files on a system that ignores
// case, the caller must tell apart those that differ in case alone.
func Check(name string) error {
	if name == "" {
		return fault(name, "is empty; 1 to %d bytes are allowed", MaxLen)
	}
	if len(name) > MaxLen {
		return fault(name, "has %d bytes; at most %d are allowed", len(name), MaxLen)
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case alphanumeric(c):
		case c != '_' && c != '-' && c != '.':
			return fault(name, "byte %s at %d: only ASCII letters, digits, '_', '-' and '.' are allowed", quote(c), i)
		case i == 0:
			return fault(name, "byte %q at 0: a name starts with a letter or digit", c)
		case c == '.' && name[i-1] == '.':
			return fault(name, "byte %q at %d: \"..\" is not allowed", c, i)
		case c == '.' && i == len(name)-1:
			return fault(name, "byte %q at %d: a name does not end with '.'", c, i)
		}
	}
	if stem, _, _ := strings.Cut(name, "."); device(stem) {
		return fault(name, "%q at 0: a device name of Windows", stem)
	}
	return nil
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// device says whether Windows takes a file of this name for a device.
func device(stem string) bool {
	stem = strings.ToUpper(stem)
	switch stem {
	case "CON", "PRN", "AUX", "NUL":
		return true
	}
	return len(stem) == 4 && (stem[:3] == "COM" || stem[:3] == "LPT") && '0' <= stem[3] && stem[3] <= '9'
}

// quote shows a byte as a character if it is one by itself.
func quote(c byte) string {
	if c >= utf8.RuneSelf {
		return fmt.Sprintf("0x%02x", c)
	}
	return fmt.Sprintf("%q", c)
}

func fault(name, format string, args ...any) error {
	rest := ""
	if len(name) > shown {
		name, rest = name[:shown], "..."
	}
	return fmt.Errorf("name %q%s: %s", name, rest, fmt.Sprintf(format, args...))
}
