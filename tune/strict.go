package tune

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/sedabus/seda/tune/api"
)

const maxDepth = 16

// decodeBody reads one JSON value without unknown or repeated fields.
func decodeBody(body []byte, to any) *api.Problem {
	err := unique(body)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		err = d.Decode(to)
	}
	if err != nil {
		return problem(http.StatusBadRequest, api.Invalid, "the body is not what this operation takes: "+err.Error())
	}
	return nil
}

var errBody = errors.New("body")

// unique checks that body is one value in which no object names a field twice.
func unique(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	if err := uniqueValue(d, 0); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: something follows the value", errBody)
	}
	return nil
}

func uniqueValue(d *json.Decoder, depth int) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	open, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	if depth == maxDepth {
		return fmt.Errorf("%w: nested too deep", errBody)
	}
	seen := map[string]bool{}
	for d.More() {
		if open == '{' {
			name, err := d.Token()
			if err != nil {
				return err
			}
			key, _ := name.(string)
			if seen[key] {
				return fmt.Errorf("%w: the field %q stands there twice", errBody, clip(key))
			}
			seen[key] = true
		}
		if err := uniqueValue(d, depth+1); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}
