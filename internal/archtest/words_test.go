package archtest

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// wordRule is a pattern that no file of the repository may hold. The patterns
// are written so that this file does not match them itself.
type wordRule struct {
	pattern *regexp.Regexp
	why     string
}

var wordRules = []wordRule{
	{regexp.MustCompile(`(?m)(^|[^\w.])/(ro` + `ot|wo` + `rk|home/\w+|Users/\w+|tm` + `p)/\w`), "a path of one machine"},
	{regexp.MustCompile(`[A-Z]:\\` + `(Users|home)\\`), "a path of one machine"},
	{regexp.MustCompile(`\bprox` + `y\.golang\.org\b|\bgopr` + `oxy\.\w+`), "the host name of a registry"},
	{regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`), "unfinished work belongs in the tracker"},
	{regexp.MustCompile(`(?i)\bis` + `sues? (no\. ?|#)?\d+\b|\bGH-` + `\d+\b`), "the number of a tracker entry means nothing to a reader"},
	{regexp.MustCompile(`<<<<` + `<<< |>>>>` + `>>> `), "a conflict marker"},
}

// document matches the name of a document in the style of this repository.
var document = regexp.MustCompile(`\b[A-Z][A-Z_]+\.md\b`)

// checkWords reads every text file: nothing that only means something on one
// machine or to one group of people, no mention of a document that is not here,
// and no workspace file, which would change what nested modules are built with.
func checkWords(tr *tree) findings {
	here := make(map[string]bool)
	for _, f := range tr.files {
		here[path.Base(f.path)] = true
	}
	var out findings
	for _, f := range tr.files {
		if base := path.Base(f.path); base == "go.work" || base == "go.work.sum" {
			out.addf("%s: no workspace file is committed", f.path)
		}
		if path.Base(f.path) == "go.sum" {
			continue
		}
		for _, rule := range wordRules {
			for _, at := range rule.pattern.FindAllStringIndex(f.text, -1) {
				out.addf("%s:%d: %q: %s", f.path, lineAt(f.text, at[1]-1), strings.TrimSpace(f.text[at[0]:at[1]]), rule.why)
			}
		}
		for _, at := range document.FindAllStringIndex(f.text, -1) {
			if name := f.text[at[0]:at[1]]; !here[name] {
				out.addf("%s:%d: names %s, which is not in the repository", f.path, lineAt(f.text, at[0]), name)
			}
		}
	}
	return out
}

func lineAt(text string, offset int) int { return 1 + strings.Count(text[:offset], "\n") }

func TestWords(t *testing.T) {
	out := checkWords(repository(t))
	out.report(t)
}

func TestWordsFindsPlantedFaults(t *testing.T) {
	gone, here := "NOTES"+".md", "HERE."+"md"
	tr := plant(t, map[string]string{
		"a.txt":     "see /wo" + "rk/x\n(/ro" + "ot/x)\nhttp://h/work/y and ./tmp/z are fine\n",
		"b.yml":     "url: https://prox" + "y.golang.org\n",
		"c.go":      "package p // TO" + "DO: later\n",
		"d.md":      "as is" + "sue 12 says, in " + here + " and " + gone + "\n",
		here:        "methods and todos, an issue at hand\n",
		"e/go.work": "go 1.26\n",
		"f.txt":     "<<<<" + "<<< HEAD\n",
	})
	expect(t, checkWords(tr),
		"a.txt:1", "a.txt:2", "b.yml:1", "c.go:1", "d.md:1: \"is"+"sue 12\"", "d.md:1: names "+gone, "e/go.work", "f.txt:1")
}
