package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os/exec"
	"reflect"
	"sort"
	"strings"
)

// fieldMarkers are the `+name=value` comments of one field.
type fieldMarkers struct {
	optional    bool
	listType    string
	listMapKeys []string
	atomicMap   bool
	defaultJSON string

	// What only OpenAPI asks.
	openAPIOptional, openAPIRequired bool
	mapType                          string
	discriminator                    bool
	blankLines                       int // between the text and what follows it
}

// openAPI writes what OpenAPI prints of a field beyond its type. It takes `+required` over `+optional` over omitempty,
// and tells a list marked atomic from one that is not marked.
func (m fieldMarkers) openAPI(f reflect.StructField) string {
	flags := ""
	omitted := strings.Contains(f.Tag.Get("json"), "omitempty")
	if m.openAPIRequired || !m.openAPIOptional && !omitted {
		flags += "r"
	}
	if m.listType != "" {
		flags += "l"
	}
	switch m.mapType {
	case "atomic":
		flags += "m"
	case "granular":
		flags += "mc"
	}
	return flags
}

// list writes the list kind: empty for atomic and unmarked, `set`, or `map:key,key`.
func (m fieldMarkers) list() string {
	switch m.listType {
	case "", "atomic":
		return ""
	case "set":
		return "set"
	case "map":
		return "map:" + strings.Join(m.listMapKeys, ",")
	}
	log.Fatalf("unknown list type %q", m.listType)
	return ""
}

// markers holds what the sources of the API packages say beyond their Go types.
type markers struct {
	fields map[string]fieldMarkers // "package.Type.Field"
	atomic map[string]bool         // "package.Type"
	consts map[string]string       // "package.Name" → literal

	// What only OpenAPI asks, by "package.Type".
	openAPIAtomic map[string]bool
	unions        map[string]bool
	enums         map[string]bool
	values        map[string][]value // of typed string constants
}

func (m *markers) printedAtomic(t reflect.Type) bool { return m.openAPIAtomic[typeKey(t)] }

func (m *markers) union(t reflect.Type) bool { return m.unions[typeKey(t)] }

// enumeration lists the values of t, or of what t points at or holds, if it is marked as an enumeration.
func (m *markers) enumeration(t reflect.Type) []value {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if !m.enums[typeKey(t)] {
		return nil
	}
	return distinct(m.values[typeKey(t)])
}

func typeKey(t reflect.Type) string { return t.PkgPath() + "." + t.Name() }

func (m *markers) field(t reflect.Type, field string) fieldMarkers {
	return m.fields[t.PkgPath()+"."+t.Name()+"."+field]
}

func (m *markers) atomicType(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return m.atomic[t.PkgPath()+"."+t.Name()]
}

// readMarkers parses the sources of packages, which it finds through the go command.
func readMarkers(packages map[string]bool) *markers {
	names := make([]string, 0, len(packages))
	for p := range packages {
		names = append(names, p)
	}
	sort.Strings(names)
	listing, err := exec.Command("go", append([]string{"list", "-f", "{{.ImportPath}} {{.Dir}}"}, names...)...).Output()
	if err != nil {
		log.Fatalf("go list: %v", err)
	}
	m := &markers{
		fields: map[string]fieldMarkers{}, atomic: map[string]bool{}, consts: map[string]string{},
		openAPIAtomic: map[string]bool{}, unions: map[string]bool{}, enums: map[string]bool{}, values: map[string][]value{},
	}
	var sources []source
	for line := range strings.Lines(string(listing)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		set := token.NewFileSet()
		parsed, err := parser.ParseDir(set, dir, nil, parser.ParseComments)
		if err != nil {
			log.Fatal(err)
		}
		for _, p := range parsed {
			for _, f := range p.Files {
				sources = append(sources, source{path, f, set})
				m.readConsts(path, f)
			}
		}
	}
	constants := collectConstants(sources)
	for _, s := range sources {
		m.readTypes(s.path, s.file, s.set)
	}
	for name := range constants {
		if found, ok := constants.resolve(name); ok {
			m.values[found.typ] = append(m.values[found.typ], found.value)
		}
	}
	return m
}

func (m *markers) readConsts(path string, file *ast.File) {
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.CONST {
			continue
		}
		for _, spec := range gen.Specs {
			value := spec.(*ast.ValueSpec)
			for i, name := range value.Names {
				if i < len(value.Values) {
					if literal, ok := value.Values[i].(*ast.BasicLit); ok {
						m.consts[path+"."+name.Name] = literal.Value
					}
				}
			}
		}
	}
}

func (m *markers) readTypes(path string, file *ast.File, set *token.FileSet) {
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.TYPE {
			continue
		}
		for _, spec := range gen.Specs {
			typ := spec.(*ast.TypeSpec)
			doc := typ.Doc
			if doc == nil {
				doc = gen.Doc
			}
			for _, marker := range append(groupBefore(file, set, doc), lines(doc)...) {
				if marker == "+structType=atomic" {
					m.atomic[path+"."+typ.Name.Name] = true
				}
			}
			m.readOpenAPI(path+"."+typ.Name.Name, lines(doc))
			if body, ok := typ.Type.(*ast.StructType); ok {
				m.readFields(path, typ.Name.Name, body)
			}
		}
	}
}

// readOpenAPI reads the markers of a type that OpenAPI asks about, which have to stand right above it.
func (m *markers) readOpenAPI(typ string, found []string) {
	for _, marker := range found {
		switch marker {
		case "+structType=atomic", "+mapType=atomic":
			m.openAPIAtomic[typ] = true
		case "+union":
			m.unions[typ] = true
		case "+enum":
			m.enums[typ] = true
		}
	}
}

// groupBefore returns the comment group that stands one blank line above doc: markers of types may be set apart.
func groupBefore(file *ast.File, set *token.FileSet, doc *ast.CommentGroup) []string {
	if doc == nil {
		return nil
	}
	start := set.Position(doc.Pos()).Line
	for _, group := range file.Comments {
		if set.Position(group.End()).Line == start-2 {
			return lines(group)
		}
	}
	return nil
}

func (m *markers) readFields(path, typ string, body *ast.StructType) {
	for _, field := range body.Fields.List {
		var found fieldMarkers
		for _, marker := range lines(field.Doc) {
			m.readMarker(path, marker, &found)
		}
		found.blankLines = blankLinesAfterText(field.Doc)
		for _, name := range field.Names {
			m.fields[path+"."+typ+"."+name.Name] = found
		}
		if len(field.Names) != 0 {
			continue
		}
		// An embedded field goes by its type's name.
		switch embedded := field.Type.(type) {
		case *ast.Ident:
			m.fields[path+"."+typ+"."+embedded.Name] = found
		case *ast.SelectorExpr:
			m.fields[path+"."+typ+"."+embedded.Sel.Name] = found
		}
	}
}

func (m *markers) readMarker(path, marker string, found *fieldMarkers) {
	name, value, _ := strings.Cut(marker, "=")
	switch name {
	case "+optional":
		found.optional = true
		found.openAPIOptional = true
	case "+k8s:optional":
		found.optional = true
	case "+required":
		found.openAPIRequired = true
	case "+unionDiscriminator":
		found.discriminator = true
	case "+listType":
		found.listType = value
	case "+listMapKey":
		found.listMapKeys = append(found.listMapKeys, value)
	case "+mapType", "+structType":
		found.mapType = value
		if value == "atomic" {
			found.atomicMap = true
		}
	case "+default":
		if constant, ok := strings.CutPrefix(value, "ref("); ok {
			constant = strings.TrimSuffix(constant, ")")
			if value, ok = m.consts[path+"."+constant]; !ok {
				log.Fatalf("no constant %s in %s", constant, path)
			}
		}
		found.defaultJSON = value
	}
}

// lines returns the marker lines of a comment.
func lines(group *ast.CommentGroup) []string {
	if group == nil {
		return nil
	}
	var found []string
	for line := range strings.Lines(group.Text()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "+") {
			found = append(found, line)
		}
	}
	return found
}
