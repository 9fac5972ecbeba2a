package main

import "strings"

// yamlInputs are YAML documents worth pinning: every style, YAML 1.1's guesses, and what is refused.
func yamlInputs() []string {
	inputs := []string{
		"", "\n", "# only a comment\n", "---\n", "---\n...\n", "null", "~", "a", "5", "\"a\"", "'a'", "[]", "{}", "- a\n- b\n", "a: b\n",
		"a: b\nc:\n  d: e\n  f:\n  - 1\n  - 2\n  -\n    g: h\n", "a:\n- b\n- c: d\n  e: f\n-\n- \n", "a:\n  - b\n  - c\n", "a:\nb:\nc: \n", "a: b: c\n", "metadata:\n\tname: a\n", "- a\n- b\n",
		"metadata:\n  name: a\n---\nmetadata:\n  name: b\n", "metadata:\n  name: a\ndata:\n  k: \"1\"\n  k: \"2\"\nfrob: 1\n", "{\"metadata\":{\"name\":\"a\"},\"data\":{\"k\":\"v\"}}", "{a: 1, b: [x, y, {c: d}], e: }", "{a, b: c, ? d : e, ? f}", "[a: b, ? c : d, : e, ?]", "[a, b,]", "{a: b,}", "[,]", "{,}", "[a b, c\n d]",
		"a: |\n  x\n  y\n", "a: |-\n  x\n  y\n", "a: |+\n  x\n  y\n\n\nb: c\n", "a: >\n  x\n  y\n\n  z\n", "a: >-\n  x\n    indented\n  y\n\n\n  z\n", "a: |2\n    x\n   y\n", "a: |2-\n    x\n", "a: |-2\n    x\n", "a: |0\n  x\n", "a: |x\n", "a: |\n\tx\n", "a: |\n\n\n  x\n\n", "a: |\nb: c\n", "a: |\n x\n  y\nb: 1\n", "a: > # comment\n  x\n", "|\n x\n", "- |\n  x\n- >\n  y\n",
		"a: 'it''s'\n", "a: 'x\n  y\n\n  z'\n", "a: \"x\n  y\\\n   z\\n\\t\\x41\\u00e9\\U0001F600\\0\\a\\b\\e\\f\\r\\v\\\\\\\"\\N\\_\\L\\P\\ \\/\"\n", "a: \"\\n\\t\\x41\\u00e9\\U0001F600\\0\\a\\b\\e\\f\\r\\v\\\\\\\"\\'\\N\\_\\L\\P\\ \"\n", "a: \"\\q\"\n", "a: \"\\xZZ\"\n", "a: \"\\uD800\"\n", "a: \"unclosed\n", "a: 'unclosed\n", "a: \"x\n---\ny\"\n", "a: \"\"\nb: ''\n", "\"a\": 1\n'b': 2\n", "a: \"x\" y\n", "a: 'x': y\n",
		"a: plain with spaces   \nb: multi\n  line\n   plain\n\n  text\nc: d\n", "a: x # comment\nb: x#y\nc: '#'\n", "a:b\n", "a: -\n", "a: -b\n", "a: ?b\n", "a: :b\n", "a: b:c\n", "a: http://x:80/y?z=1\n", "a: [x:y, z]\n", "a: *b\n", "a: &x b\nc: *x\n", "a: &x {b: c}\nd: *x\ne: *x\n", "a: &x\n  b: *x\n", "&a b: c\n*a : d\n", "a: &x\nb: *x\n", "a: !!str 5\nb: !!int \"5\"\nc: !!float 5\nd: !!bool yes\ne: !!null ''\n", "a: !!int x\n", "a: !!float x\n", "a: !!binary aGVsbG8=\n", "a: !!binary '*'\n", "a: !foo bar\nb: !<tag:x> y\nc: ! 5\n", "a: !!set {x, y}\n", "a: !x!y z\n", "%YAML 1.1\n---\na: b\n", "%YAML 1.2\n---\na: b\n", "%YAML 1\n---\n", "%YAML 1.1\n%YAML 1.1\n---\na\n", "%TAG !e! tag:e:\n---\na: !e!x y\n", "%TAG !e! tag:e:\n%TAG !e! tag:f:\n---\na\n", "%FOO\n---\na\n", "%YAML 1.1\na: b\n", "a: !!timestamp 2020-01-01\n", "a: !!timestamp x\n",
		"base: &b {x: 1, y: 2}\na:\n  <<: *b\n  y: 3\n", "base: &b {x: 1, y: 2}\na:\n  y: 3\n  <<: *b\n", "b1: &b1 {x: 1}\nb2: &b2 {x: 2, z: 3}\na:\n  <<: [*b1, *b2]\n", "a:\n  <<: {x: 1}\n", "a:\n  <<: x\n", "a:\n  <<: [x]\n", "b: &b [1]\na:\n  <<: *b\n",
		"? a\n: b\n", "? a\n", "? - x\n  - y\n: z\n", "? {a: b}\n: c\n", "{}: a\n", "[]: a\n", "[a]: b\n", "{a: b}: c\n", ": a\n", "a: b\n c: d\n", " a: b\nc: d\n", "a:\n  b: c\n d: e\n", "- a\nb: c\n", "a: b\n- c\n", "- a\n b\n", "-a\n", "--- a\n--- b\n", "---\na: b\n...\n", "a\n...\nb\n", "a: b\n...\n%YAML 1.1\n---\nc\n", "a: [b\n", "a: {b\n", "a: {b: c\n", "a: b]\n", "a: b}\n", "]\n", "a: ]\n", "a: [b}\n", "a: @b\n", "a: `b\n", "a: %b\n", "@a: b\n", "a: |\n", "a: !\n", "a: &\n", "a: *\n", "a: & b\n", "&a &b c\n", "a: ,b\n", "a: b, c\n", "key: [a, - b]\n", "a:\t b\n", "a: b\t\n", "\ta: b\n", "a:\n\t- b\n", "- \ta\n", "a: x\ty\n", "a: \"x\ty\"\n",
		"1: a\n1.5: b\ntrue: c\n", "null: a\n", "~: a\n", "18446744073709551615: a\n", "1: a\n1: b\n", "true: a\nyes: b\n", "a: 1\na: 2\na: 3\nb:\n  c: 1\n  c: 2\n", "{a: 1, a: 2}\n", "? a\n: 1\n? a\n: 2\n", "0x10: a\n", "1e3: a\n", "0.1: b\n123456789.5: c\n",
		"a: b\r\nc: d\r\n", "a: b\rc: d\r", "a: x\u0085b: y\n", "a: \u2028x\n", "\ufeffa: b\n", "a: \ufeffb\n", "a: \u00e9\U0001F600\n", "a: \x01\n", "a: \x7f\n", "a: \u0080\n", "a: \x00\n",
		"a: .\nb: ..\nc: ...\n", "a: -\nb: --\nc: ---\n", "a: ---x\n---y: z\n", "a:\n  - - b\n    - c\n  - - d\n", "- - a\n  - b\n- c\n", "-   a: b\n    c: d\n", "- # comment\n  a\n", "a: # comment\n  b\n", "# c\na: b # d\n# e\n", "a:\n\n\n  b: c\n\n\nd: e\n", "a: b\nc\n", "a: b\nc: d: e\n", "x\ny: z\n", "a: [\n  b,\n  c\n]\n", "a: {\n  b: c,\n  d: e\n}\n", "a: [\nb,\nc\n]\n", "a: {b: [c, {d: e}], \"f\":g, 'h':i}\n", "{\"a\":1,\"b\":{\"c\":[true,null,1.5]}}", "{\"a\":\"x\\u00e9y\"}", "{a:b}", "{\"a\":b}", "{a: b c: d}", strings.Repeat("k", 1030) + ": v\n", "? " + strings.Repeat("k", 1030) + "\n: v\n", strings.Repeat("a", 1100) + "\n", "x: &a [1]\ny: &a [2]\nz: *a\n",
	}
	for _, scalar := range []string{
		"y", "Y", "yes", "Yes", "YES", "n", "no", "No", "NO", "true", "True", "TRUE", "tRue", "on", "On", "off", "OFF", "false", "~", "null", "Null", "NULL", "nULL", "", "0", "1", "-1", "+1", "010", "0o10", "0x1F", "0b101", "-0b101", "0b2", "08", "09.5", "1_000", "_1", "1__0", "1.", ".5", "-.5", "+.5", "1.5", "1e3", "1E3", "1e+3", "1e-3", "1.e3", ".e3", "1e", "e3", "1e400", "-1e400", ".inf", "-.inf", "+.INF", ".nan", ".NaN", "inf", "nan",
		"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616", "0x8000000000000000", "0xFFFFFFFFFFFFFFFFF", "190:20:30", "1:2", "12:30:45.5", "2020-01-02", "2020-1-2", "2020-13-01", "2020-02-30", "2020-01-02T03:04:05Z", "2020-01-02t03:04:05.5+01:00", "2020-01-02 03:04:05", "2020-01-02 03:04:05 Z", "20-01-02", "1.2.3", "1,000", "$1", "1%", "0.1.2", "1-2", "--1", "+-1", "0x", "0o8", "-", "+", "=", "<<", "!", "1k", "100m", "1Gi", "0777", "0888", "-010", "1e1_0", "١",
	} {
		inputs = append(inputs, "a: "+scalar+"\n")
	}
	// A document cut at every place.
	whole := "apiVersion: v1\nkind: ConfigMap # it is\nmetadata: {name: a, labels: {\"x\": 'y'}}\ndata:\n  k: |\n    l\n\n    m\n  n: &a [1, *a2]\n"
	for i := range whole {
		inputs = append(inputs, whole[:i])
	}
	inputs = append(inputs, "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n")
	return inputs
}

// jsonInputs are values whose printing as YAML is worth pinning.
func jsonInputs() []string {
	long := strings.Repeat("some words that go on ", 12)
	inputs := []string{
		`{}`, `[]`, `null`, `5`, `"a"`, `{"a":null}`, `{"a":[]}`, `{"a":{}}`, `{"a":[[]],"b":[{}],"c":[[1,[2]],[]]}`, `{"a":[{"b":1,"c":[1,2]},{"d":{}}],"e":{"f":{"g":1}}}`, `[[1,2],[3]]`, `[{"a":1},{"b":[{"c":1}]}]`, `{"b":1,"a":2,"C":3,"a10":4,"a9":5,"_x":7,".y":8,"a-b":9,"a.b":10,"aB":11,"ab":12,"":13,"é":14,"10":17,"9":18,"1.5":19,"f:a":20,"k:{\"x\":1}":21}`,
		`{"true":1,"null":2,"~":3,"yes":4,"0x1":5,"2020-01-01":6,"a: b":7,"- a":8,"#":9,"a#b":10,"a #b":11,"[":12,"'":13,"\"":14," a":15,"a ":16,"a\nb":17,"?":18,"!x":19,"&x":20,"*x":21,"%x":22,"@x":23}`,
		`{"n":[0,-1,1.5,0.1,1e21,1e-7,123456789.125,1000000.5,100000.5,9223372036854775807,18446744073709551615,1e20,12345678901234567890123,1e300,0.00001,0.0001234,-0.5]}`,
		`{"long":"` + long + `","longer":{"x":["` + long + `"]},"quoted":"` + strings.ReplaceAll(long, "some", "some: ") + `","dq":"` + strings.ReplaceAll(long, "some", "\\tsome") + `","spaces":"` + strings.Repeat("wide   gaps   ", 12) + `x"}`,
		`{"` + strings.Repeat("k", 128) + `":1,"` + strings.Repeat("l", 129) + `":{"a":[1]},"a\nb":[1],"c\n":"d"}`,
	}
	for _, text := range []string{
		``, ` `, `a`, `a b`, ` a`, `a `, `a\n`, `a\nb`, `a\nb\n`, `a\n\n`, `\n`, `\na`, `\n\n`, ` a\nb`, `a\n b`, `a \nb`, `a\nb `, `a\tb`, `\ta`, `a\t\nb`, `a\r\nb`, `a\rb`, `y`, `n`, `true`, `null`, `~`, `1`, `1.5`, `0x1`, `1_0`, `.5`, `1e3`, `1:30`, `1:30:45`, `190:20:30.15`, `1:60`, `:`, `a:`, `a: b`, `a:b`, `:a`, `- a`, `-`, `-a`, `--`, `---`, `--- a`, `...`, `..`, `? a`, `?`, `?a`, `# a`, `a #b`, `a#b`, `,a`, `a,b`, `[a]`, `a[b]`, `{a}`, `&a`, `*a`, `!a`, `|`, `>`, `'a'`, `it's`, `\"a\"`, `a\"b`, `%a`, `@a`, "`a", `é`, `日本`, `😀`, `a😀b`, `\u0000`, `\u0001`, `\u007f`, `\u0080`, `\u0085`, `\u00a0`, `\u2028`, `a\u2028b`, `\ufeff`, `\ufeffab`, `a\ufeff`, `\ufffd`, `\ufffe`, `\ud7ff`, `\ue000`, `<<`, `=`, `2020-01-02`, `2020-01-02T03:04:05Z`, `2020-01-02 03:04:05`, `2020-13-01`, `2020-1-2`, `a\\b`, `a\nb: c\n# d\n`, `#!/bin/sh\necho hi\n`, `line 1\n  indented\nline 3\n`, `\n  x`, `trailing  \n`, `x\n\n\ny`,
	} {
		inputs = append(inputs, `{"a":"`+text+`"}`, `["`+text+`"]`, `{"`+text+`":"b"}`)
	}
	return inputs
}
