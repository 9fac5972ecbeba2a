package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// applySchema is the part of client-go's schema for server-side apply that the table must agree with.
type applySchema struct {
	Types []struct {
		Name string
		Map  *struct {
			Fields []struct {
				Name    string
				Type    applyType
				Default any
			}
			ElementRelationship string
		}
	}
}

type applyType struct {
	NamedType string
	List      *struct {
		ElementRelationship string
		Keys                []string
	}
	Map *struct {
		ElementRelationship string
	}
}

// TestListKindsAgreeWithClientGo compares list types, keys and atomic maps, which the table reads from comments, with
// what upstream's generators made of the same comments.
func TestListKindsAgreeWithClientGo(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/client-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "applyconfigurations", "internal", "internal.go"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(source), "typed.YAMLObject(`")
	text, _, _ = strings.Cut(text, "`)")
	var schema applySchema
	if err := yaml.Unmarshal([]byte(text), &schema); err != nil {
		t.Fatal(err)
	}

	fields, types := tableFacts(t)
	compared := 0
	for _, typ := range schema.Types {
		if typ.Map == nil || !types[typ.Name].known {
			continue
		}
		if want := typ.Map.ElementRelationship == "atomic"; types[typ.Name].atomic != want {
			t.Errorf("%s: atomic is %v, client-go says %v", typ.Name, types[typ.Name].atomic, want)
		}
		for _, field := range typ.Map.Fields {
			have, ok := fields[typ.Name+"."+field.Name]
			if !ok {
				t.Errorf("%s has no field %s", typ.Name, field.Name)
				continue
			}
			compared++
			if field.Type.List != nil {
				want := ""
				if field.Type.List.ElementRelationship == "associative" {
					want = "set"
					if len(field.Type.List.Keys) > 0 {
						want = "map:" + strings.Join(field.Type.List.Keys, ",")
					}
				}
				if have.list != want {
					t.Errorf("%s.%s: list is %q, client-go says %q", typ.Name, field.Name, have.list, want)
				}
			}
			if m := field.Type.Map; m != nil && (m.ElementRelationship == "atomic") != have.atomic {
				t.Errorf("%s.%s: atomic is %v, client-go says %q", typ.Name, field.Name, have.atomic, m.ElementRelationship)
			}
		}
	}
	if compared < 2000 {
		t.Errorf("only %d fields compared", compared)
	}
}

type typeFacts struct{ known, atomic bool }

type fieldFacts struct {
	list   string
	atomic bool
}

// tableFacts prints the table and reads back what the test compares.
func tableFacts(t *testing.T) (map[string]fieldFacts, map[string]typeFacts) {
	t.Helper()
	table := newTable()
	for _, k := range collectKinds() {
		table.add(k.typ)
	}
	table.readMarkers()
	var printed bytes.Buffer
	out := bufio.NewWriter(&printed)
	table.print(out)
	out.Flush()

	fields, types := map[string]fieldFacts{}, map[string]typeFacts{}
	var current string
	for line := range strings.Lines(printed.String()) {
		columns := append(strings.Split(strings.TrimSuffix(line, "\n"), "\t"), make([]string, 12)...)
		switch columns[0] {
		case "T":
			current = columns[1]
			types[current] = typeFacts{true, strings.Contains(columns[3], "a")}
		case "F":
			fields[current+"."+columns[1]] = fieldFacts{columns[8], strings.Contains(columns[7], "a")}
		}
	}
	return fields, types
}
