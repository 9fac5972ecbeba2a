package main

import (
	"go/ast"
	"go/token"
	"log"
	"path"
	"slices"
	"strconv"
	"strings"
)

// value is one value of an enumeration: the constant that names it, its text, and what its comment says.
type value struct {
	constant, text, comment string
}

// source is one file of a package.
type source struct {
	path string
	file *ast.File
	set  *token.FileSet
}

// constant is a declared constant, not evaluated yet.
type constant struct {
	source
	name    string
	typ     ast.Expr
	expr    ast.Expr
	comment string
}

// typedValue is a text constant and the type it is of, as "package.Type".
type typedValue struct {
	value
	typ string
}

// constants are by "package.Name".
type constants map[string]constant

func collectConstants(sources []source) constants {
	found := constants{}
	for _, s := range sources {
		comments := map[int]string{}
		for _, group := range s.file.Comments {
			comments[s.set.Position(group.End()).Line] = group.Text()
		}
		for _, decl := range s.file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.CONST {
				continue
			}
			for _, spec := range gen.Specs {
				declared := spec.(*ast.ValueSpec)
				for i, name := range declared.Names {
					if i >= len(declared.Values) {
						continue
					}
					// Upstream's generator takes whatever comment ends on the line above.
					comment := comments[s.set.Position(name.Pos()).Line-1]
					found[s.path+"."+name.Name] = constant{s, name.Name, declared.Type, declared.Values[i], comment}
				}
			}
		}
	}
	return found
}

// resolve evaluates a constant that is a text of a named type.
func (c constants) resolve(name string) (typedValue, bool) {
	declared, ok := c[name]
	if !ok {
		return typedValue{}, false
	}
	found, ok := c.evaluate(declared.source, declared.expr)
	if declared.typ != nil {
		found.typ = declared.qualified(declared.typ)
	}
	found.constant, found.comment = declared.name, declared.comment
	return found, ok
}

// evaluate reads a literal, a conversion or the name of another constant.
func (c constants) evaluate(in source, expr ast.Expr) (typedValue, bool) {
	switch e := expr.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return typedValue{value: value{text: text}}, err == nil && e.Kind == token.STRING
	case *ast.CallExpr:
		if len(e.Args) != 1 {
			return typedValue{}, false
		}
		found, ok := c.evaluate(in, e.Args[0])
		found.typ = in.qualified(e.Fun)
		return found, ok
	case *ast.Ident, *ast.SelectorExpr:
		return c.resolve(in.qualified(e))
	}
	return typedValue{}, false
}

// qualified is the "package.Name" that a name in this file means; empty if it is none.
func (s source) qualified(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.Ident:
		return s.path + "." + e.Name
	case *ast.SelectorExpr:
		from, ok := e.X.(*ast.Ident)
		if !ok {
			return ""
		}
		for _, spec := range s.file.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			local := path.Base(imported)
			if spec.Name != nil {
				local = spec.Name.Name
			}
			if local == from.Name {
				return imported + "." + e.Sel.Name
			}
		}
	}
	return ""
}

// distinct has each text once, sorted. Of several constants of a text the one with the longest comment counts, as it does to
// upstream's generator.
func distinct(values []value) []value {
	values = slices.Clone(values)
	slices.SortFunc(values, func(a, b value) int {
		if order := strings.Compare(a.text, b.text); order != 0 {
			return order
		}
		if order := len(b.comment) - len(a.comment); order != 0 {
			return order
		}
		return strings.Compare(a.comment, b.comment)
	})
	return slices.CompactFunc(values, func(a, b value) bool { return a.text == b.text })
}

// meaning is what OpenAPI says of the value: its comment in one line, without the constant's name at the start.
func (v value) meaning() string {
	text := strings.TrimPrefix(strings.TrimSpace(v.comment), v.constant)
	return strings.Join(strings.Fields(text), " ")
}

// enumerationColumns are the values and what they mean, each with `|` between them.
func enumerationColumns(values []value) []string {
	var texts, meanings []string
	for _, v := range values {
		if strings.Contains(v.text+v.meaning(), "|") {
			log.Fatalf("%s has a bar in its text or comment", v.constant)
		}
		texts, meanings = append(texts, v.text), append(meanings, v.meaning())
	}
	meaning := strings.Join(meanings, "|")
	if strings.Trim(meaning, "|") == "" {
		meaning = ""
	}
	return []string{strings.Join(texts, "|"), meaning}
}

// blankLinesAfterText counts the blank lines of a comment after its last line of text. Upstream's generator keeps them before
// the values of an enumeration.
func blankLinesAfterText(group *ast.CommentGroup) int {
	blank := 0
	for line := range strings.Lines(group.Text()) {
		switch line = strings.TrimSpace(line); {
		case line == "":
			blank++
		case strings.HasPrefix(line, "+"), strings.HasPrefix(line, "TODO"):
		default:
			blank = 0
		}
	}
	return blank
}
