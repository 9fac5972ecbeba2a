package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializerjson "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// writeFixtures writes what upstream's own code makes of many inputs, for the codecs' tests to compare with.
func writeFixtures(dir string) {
	write := func(name string, lines []string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	write("kinds.tsv", kindFixtures(""))
	write("decode.jsonl", decodeFixtures())
	write("protobuf.jsonl", protobufFixtures())
	write("yaml_in.jsonl", yamlInFixtures())
	write("yaml_out.jsonl", yamlOutFixtures())
}

// kindFixtures prints, for every kind filled in the same way as the test fills it, the hashes of its forms:
// group, version, kind, JSON, protobuf, YAML, JSON of the zero value, protobuf of the zero value, outcomes of mutations.
// With a kind named, it prints the forms themselves.
func kindFixtures(explain string) []string {
	lines := []string{"# Hashes of every built-in kind's forms, printed by `make facts`. Do not edit."}
	for _, k := range collectKinds() {
		if k.kind == "WatchEvent" {
			continue
		}
		object := reflect.New(k.typ)
		(&filler{open: map[reflect.Type]bool{}}).fill(object.Elem())
		text := marshalJSON(object.Interface())
		wire := marshalProtobuf(object.Interface())
		asYAML, err := yaml.JSONToYAML(text)
		if err != nil {
			log.Fatal(err)
		}
		zero := reflect.New(k.typ)
		zeroText, zeroWire := marshalJSON(zero.Interface()), marshalProtobuf(zero.Interface())
		var outcomes []byte
		if !strings.HasSuffix(k.kind, "List") {
			outcomes = mutationOutcomes(k.typ, text)
		}
		if explain != "" && explain == k.group+"/"+k.version+"/"+k.kind {
			return []string{string(text), hex.EncodeToString(wire), string(asYAML), string(zeroText), hex.EncodeToString(zeroWire), string(outcomes)}
		}
		lines = append(lines, strings.Join([]string{
			k.group, k.version, k.kind, hash(text), hash(wire), hash(asYAML), hash(zeroText), hash(zeroWire), hash(outcomes),
		}, "\t"))
	}
	return lines
}

// hash shortens a form to what tells it from others; empty forms stay empty.
func hash(form []byte) string {
	if len(form) == 0 {
		return ""
	}
	sum := sha256.Sum256(form)
	return hex.EncodeToString(sum[:8])
}

func marshalJSON(object any) []byte {
	text, err := json.Marshal(object)
	if err != nil {
		log.Fatal(err)
	}
	return text
}

func marshalProtobuf(object any) []byte {
	m, ok := object.(marshaler)
	if !ok {
		return nil
	}
	wire, err := m.Marshal()
	if err != nil {
		log.Fatal(err)
	}
	return wire
}

// maxMutations bounds the mutations of one kind.
const maxMutations = 40

var replacements = []string{
	`null`, `true`, `5`, `1.5`, `"x"`, `[]`, `{}`, `[1]`, `{"a":1}`, `""`, `-1`, `9999999999999999999`, `[null]`, `{"a":null}`,
}

// mutationOutcomes decodes text with single values replaced and prints what came of each.
func mutationOutcomes(t reflect.Type, text []byte) []byte {
	ranges := valueRanges(text)
	stride := len(ranges)/maxMutations + 1
	var out bytes.Buffer
	for i := 0; i < len(ranges); i += stride {
		r := ranges[i]
		mutated := string(text[:r[0]]) + replacements[(i/stride)%len(replacements)] + string(text[r[1]:])
		object := reflect.New(t).Interface()
		strict, err := kjson.UnmarshalStrict([]byte(mutated), object)
		switch {
		case err != nil:
			fmt.Fprintf(&out, "%d error %v\n", r[0], err)
		default:
			fmt.Fprintf(&out, "%d %v %s\n", r[0], strict, hash(marshalJSON(object)))
		}
	}
	return out.Bytes()
}

// valueRanges lists where each JSON value of a compact document begins and ends, outer ones first.
func valueRanges(text []byte) [][2]int {
	var found [][2]int
	var value func(at int) int
	str := func(at int) int {
		for at++; text[at] != '"'; at++ {
			if text[at] == '\\' {
				at++
			}
		}
		return at + 1
	}
	value = func(at int) int {
		index := len(found)
		found = append(found, [2]int{at, 0})
		end := at
		switch text[at] {
		case '"':
			end = str(at)
		case '{', '[':
			open := text[at]
			end++
			for text[end] != '}' && text[end] != ']' {
				if text[end] == ',' {
					end++
				}
				if open == '{' {
					end = str(end) + 1
				}
				end = value(end)
			}
			end++
		default:
			for end < len(text) && !strings.ContainsRune(",]}", rune(text[end])) {
				end++
			}
		}
		found[index][1] = end
		return end
	}
	value(0)
	return found
}

type decodeCase struct {
	Type string `json:"type"`
	In   string `json:"in"`
	// In64 replaces In where the input is not UTF-8.
	In64   []byte   `json:"in64,omitempty"`
	Meta   string   `json:"meta,omitempty"`
	Error  string   `json:"error,omitempty"`
	Strict []string `json:"strict,omitempty"`
	Out    string   `json:"out,omitempty"`
}

// decodeFixtures prints what upstream makes of the inputs in cases.go, one JSON object a line.
func decodeFixtures() []string {
	types := map[string]reflect.Type{}
	for _, k := range collectKinds() {
		types[k.group+"/"+k.version+"/"+k.kind] = k.typ
	}
	var lines []string
	for _, c := range decodeCases() {
		input := []byte(c.In)
		if c.In64 != nil {
			input = c.In64
		}
		if gvk, err := serializerjson.DefaultMetaFactory.Interpret(input); err != nil {
			c.Meta = "error: " + err.Error()
		} else {
			c.Meta = gvk.GroupVersion().String() + " " + gvk.Kind
		}
		if c.Type == "" {
			var object map[string]any
			strict, err := kjson.UnmarshalStrict(input, &object)
			c.record(object, strict, err)
		} else {
			t, ok := types[c.Type]
			if !ok {
				log.Fatalf("no type %s", c.Type)
			}
			object := reflect.New(t).Interface()
			strict, err := kjson.UnmarshalStrict(input, object)
			c.record(object, strict, err)
		}
		lines = append(lines, string(marshalJSON(c)))
	}
	return lines
}

func (c *decodeCase) record(object any, strict []error, err error) {
	if err != nil {
		c.Error = err.Error()
		return
	}
	for _, s := range strict {
		c.Strict = append(c.Strict, s.Error())
	}
	c.Out = string(marshalJSON(object))
}

// protobufFixtures prints whole envelopes, as the server sends them.
func protobufFixtures() []string {
	scheme := runtime.NewScheme()
	for _, k := range collectKinds() {
		if k.group != everywhere {
			if object, ok := reflect.New(k.typ).Interface().(runtime.Object); ok {
				scheme.AddKnownTypeWithName(schema.GroupVersionKind{Group: k.group, Version: k.version, Kind: k.kind}, object)
			}
		}
	}
	serializer := protobuf.NewSerializer(scheme, scheme)
	var lines []string
	for _, c := range envelopeCases() {
		if err := json.Unmarshal([]byte(c.JSON), c.object); err != nil {
			log.Fatal(err)
		}
		var wire bytes.Buffer
		if err := serializer.Encode(c.object, &wire); err != nil {
			log.Fatal(err)
		}
		c.Hex = hex.EncodeToString(wire.Bytes())
		c.JSON = string(marshalJSON(c.object))
		lines = append(lines, string(marshalJSON(c)))
	}
	return lines
}

type yamlCase struct {
	YAML   string `json:"yaml"`
	JSON   string `json:"json,omitempty"`
	Error  string `json:"error,omitempty"`
	Strict string `json:"strict,omitempty"`
}

func yamlInFixtures() []string {
	var lines []string
	for _, input := range yamlInputs() {
		c := yamlCase{YAML: input}
		if out, err := yaml.YAMLToJSON([]byte(input)); err != nil {
			c.Error = err.Error()
		} else {
			c.JSON = string(out)
			if _, err := yaml.YAMLToJSONStrict([]byte(input)); err != nil {
				c.Strict = err.Error()
			}
		}
		lines = append(lines, string(marshalJSON(c)))
	}
	return lines
}

func yamlOutFixtures() []string {
	var lines []string
	for _, input := range jsonInputs() {
		out, err := yaml.JSONToYAML([]byte(input))
		if err != nil {
			log.Fatalf("%s: %v", input, err)
		}
		lines = append(lines, string(marshalJSON(yamlCase{JSON: input, YAML: string(out)})))
	}
	return lines
}
