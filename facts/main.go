// Command facts prints the table of facts about built-in Kubernetes kinds that mica-machinery embeds.
//
// It reflects over the Go types of the upstream API modules and reads the markers (`+listType`, `+default`, …) from
// their sources in the module cache. The output depends on nothing but the module versions in go.mod.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"reflect"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/version"
)

func main() {
	log.SetFlags(0)
	switch {
	case len(os.Args) == 3 && os.Args[1] == "fixtures":
		writeFixtures(os.Args[2])
		return
	case len(os.Args) == 3 && os.Args[1] == "explain":
		// What a hash in the fixtures stands for: `go run . explain apps/v1/Deployment`.
		fmt.Println(strings.Join(kindFixtures(os.Args[2]), "\n"))
		return
	}
	kinds := collectKinds()
	table := newTable()
	for _, k := range kinds {
		table.add(k.typ)
	}
	// No kind, but `/version` answers it and OpenAPI describes it.
	table.add(reflect.TypeFor[version.Info]())
	table.readMarkers()

	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	fmt.Fprintln(out, "# Facts about built-in Kubernetes kinds, printed by `make facts`. Do not edit. The columns are in facts/main.go.")
	table.print(out)
	for _, k := range kinds {
		// K: group, version, kind, type.
		fmt.Fprintf(out, "K\t%s\t%s\t%s\t%s\n", k.group, k.version, k.kind, openAPIName(k.typ))
	}
}

// table holds the struct types reachable from the kinds.
type table struct {
	types   map[reflect.Type]bool
	markers *markers
}

func newTable() *table {
	return &table{types: map[reflect.Type]bool{}}
}

// add records t and every struct type reachable from it.
func (tb *table) add(t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if _, ok := unions[t]; ok {
		tb.add(schemaType)
		return
	}
	if t.Kind() != reflect.Struct || tb.types[t] {
		return
	}
	if _, special := specials[t]; special {
		return
	}
	tb.types[t] = true
	for i := range t.NumField() {
		tb.add(t.Field(i).Type)
	}
}

func (tb *table) readMarkers() {
	packages := map[string]bool{}
	for t := range tb.types {
		packages[t.PkgPath()] = true
	}
	tb.markers = readMarkers(packages)
}

func (tb *table) print(out *bufio.Writer) {
	types := make([]reflect.Type, 0, len(tb.types))
	for t := range tb.types {
		types = append(types, t)
	}
	sort.Slice(types, func(i, j int) bool { return openAPIName(types[i]) < openAPIName(types[j]) })
	for _, t := range types {
		// T: OpenAPI name, Go name, flags (a: atomic struct, p: has protobuf, m: OpenAPI prints the map type atomic).
		flags := ""
		if tb.markers.atomicType(t) {
			flags += "a"
		}
		if hasProtobuf(t) {
			flags += "p"
		}
		if tb.markers.printedAtomic(t) {
			flags += "m"
		}
		fmt.Fprintf(out, "T\t%s\t%s\t%s\n", openAPIName(t), t.String(), flags)
		tb.printFields(out, t, t, "", map[string]bool{})
		tb.printEmbedded(out, t)
		tb.printUnions(out, t)
	}
}

// printFields prints the JSON fields of t, embedded structs flattened in place as encoding/json does.
func (tb *table) printFields(out *bufio.Writer, root, t reflect.Type, embedded string, seen map[string]bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, ok := jsonTag(f)
		if !ok {
			continue
		}
		if f.Anonymous && name == "" {
			if f.Type.Kind() == reflect.Pointer {
				log.Fatalf("%v embeds a pointer: %s", t, f.Name)
			}
			inner := f.Name
			if embedded != "" {
				inner = embedded + "." + f.Name
			}
			tb.printFields(out, root, f.Type, inner, seen)
			continue
		}
		if name == "" {
			name = f.Name
		}
		if seen[name] {
			log.Fatalf("%v has two JSON fields %s", root, name)
		}
		seen[name] = true
		tb.printField(out, t, f, name, options, embedded)
	}
}

func (tb *table) printField(out *bufio.Writer, t reflect.Type, f reflect.StructField, name string, options map[string]bool, embedded string) {
	m := tb.markers.field(t, f.Name)
	// F: JSON name, Go name, embedding path, protobuf number, shape, Go types, flags (p: pointer, e: omitempty,
	// z: omitzero, o: optional, a: atomic map or struct), list, patch strategy, patch key, default,
	// OpenAPI's flags (r: required, l: prints the list type, m: prints the map type, c: prints it as granular,
	// b: a blank line after the text, for each), values of the enumeration that the field or its elements hold, and what
	// they mean.
	flags := ""
	if f.Type.Kind() == reflect.Pointer {
		flags += "p"
	}
	if options["omitempty"] {
		flags += "e"
	}
	if options["omitzero"] {
		flags += "z"
	}
	if m.optional {
		flags += "o"
	}
	if m.atomicMap || tb.markers.atomicType(f.Type) {
		flags += "a"
	}
	columns := []string{
		name, f.Name, embedded, protobufNumber(f), shape(f.Type), goTypes(f.Type), flags, m.list(),
		strings.ReplaceAll(f.Tag.Get("patchStrategy"), ",", "+"), f.Tag.Get("patchMergeKey"), m.defaultJSON,
		m.openAPI(f),
	}
	if values := tb.markers.enumeration(f.Type); len(values) > 0 {
		columns[len(columns)-1] += strings.Repeat("b", m.blankLines)
		columns = append(columns, enumerationColumns(values)...)
	}
	// Trailing empty columns say nothing.
	fmt.Fprintf(out, "F\t%s\n", strings.TrimRight(strings.Join(columns, "\t"), "\t"))
}

// printEmbedded prints the embedded structs that are messages of their own in protobuf.
func (tb *table) printEmbedded(out *bufio.Writer, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		if name, _, ok := jsonTag(f); !ok || !f.Anonymous || name != "" {
			continue
		}
		if number := protobufNumber(f); number != "" {
			// E: protobuf number, type.
			fmt.Fprintf(out, "E\t%s\t%s\n", number, openAPIName(f.Type))
		}
	}
}

// printUnions prints the unions that t or a struct embedded in it is marked as.
func (tb *table) printUnions(out *bufio.Writer, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		if name, _, ok := jsonTag(f); ok && f.Anonymous && name == "" {
			tb.printUnions(out, f.Type)
		}
	}
	if !tb.markers.union(t) {
		return
	}
	discriminator := ""
	var members []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, ok := jsonTag(f)
		switch {
		case !ok || name == "":
		case tb.markers.field(t, f.Name).discriminator:
			discriminator = name
		default:
			members = append(members, name+"="+f.Name)
		}
	}
	// U: JSON name of the discriminator, members by JSON and Go name.
	fmt.Fprintf(out, "U\t%s\t%s\n", discriminator, strings.Join(members, ","))
}

// jsonTag splits the json tag of f; ok is false if JSON skips the field.
func jsonTag(f reflect.StructField) (name string, options map[string]bool, ok bool) {
	tag := f.Tag.Get("json")
	if tag == "-" || !f.IsExported() {
		return "", nil, false
	}
	parts := strings.Split(tag, ",")
	options = map[string]bool{}
	for _, o := range parts[1:] {
		options[o] = true
	}
	return parts[0], options, true
}

func protobufNumber(f reflect.StructField) string {
	parts := strings.Split(f.Tag.Get("protobuf"), ",")
	if len(parts) < 2 {
		return ""
	}
	return parts[1]
}
