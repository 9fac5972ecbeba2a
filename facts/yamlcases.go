package main

func yamlInputs() []string { return []string{"a: b\n"} }

func jsonInputs() []string { return []string{`{"a":"b"}`} }
