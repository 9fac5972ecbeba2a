package main

import (
	"log"
	"reflect"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// specials are the struct types with a JSON or protobuf form of their own.
var specials = map[reflect.Type]string{
	reflect.TypeFor[metav1.Time]():          "time",
	reflect.TypeFor[metav1.MicroTime]():     "microtime",
	reflect.TypeFor[metav1.Duration]():      "duration",
	reflect.TypeFor[resource.Quantity]():    "quantity",
	reflect.TypeFor[intstr.IntOrString]():   "intorstring",
	reflect.TypeFor[runtime.RawExtension](): "raw",
	reflect.TypeFor[metav1.FieldsV1]():      "fieldsv1",
	reflect.TypeFor[apiextensionsv1.JSON](): "json",
}

// unions are the schema-or-something types; each also names the schema type.
var unions = map[reflect.Type]string{
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrBool]():        "orbool",
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrArray]():       "orarray",
	reflect.TypeFor[apiextensionsv1.JSONSchemaPropsOrStringArray](): "orstrings",
}

var schemaType = reflect.TypeFor[apiextensionsv1.JSONSchemaProps]()

var scalars = map[reflect.Kind]string{
	reflect.String: "string", reflect.Bool: "bool",
	reflect.Int: "int64", reflect.Int32: "int32", reflect.Int64: "int64",
	reflect.Uint8: "uint8", reflect.Uint16: "uint16", reflect.Uint32: "uint32", reflect.Uint64: "uint64",
	reflect.Float32: "float32", reflect.Float64: "float64",
}

type marshaler interface{ Marshal() ([]byte, error) }

func hasProtobuf(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[marshaler]())
}

// shape writes what a Go type holds: `list:` and `map:` prefix what they hold, structs stand by OpenAPI name.
func shape(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s, ok := specials[t]; ok {
		return s
	}
	if s, ok := unions[t]; ok {
		return s + ":" + openAPIName(schemaType)
	}
	if s, ok := scalars[t.Kind()]; ok {
		return s
	}
	switch t.Kind() {
	case reflect.Struct:
		return openAPIName(t)
	case reflect.Interface:
		return "json"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		if t.Name() != "" && hasProtobuf(t) {
			if t.Elem().Kind() != reflect.String {
				log.Fatalf("%v is a message but no list of strings", t)
			}
			return "strings"
		}
		refusePointer(t)
		return "list:" + shape(t.Elem())
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			log.Fatalf("%v has keys that are no strings", t)
		}
		refusePointer(t)
		return "map:" + shape(t.Elem())
	}
	log.Fatalf("%v has no shape", t)
	return ""
}

// refusePointer stops where elements are pointers: the table has no word for a null element.
func refusePointer(t reflect.Type) {
	if t.Elem().Kind() == reflect.Pointer {
		log.Fatalf("%v has pointer elements", t)
	}
}

// goTypes lists the names of t and its elements from the outside in, as reflect prints them in JSON errors.
func goTypes(t reflect.Type) string {
	var names []string
	for {
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
			continue
		}
		names = append(names, t.String())
		if _, special := specials[t]; special || (t.Kind() != reflect.Slice && t.Kind() != reflect.Map) {
			return strings.Join(names, "|")
		}
		t = t.Elem()
	}
}

// openAPIName is the name that upstream's generated OpenAPI gives t.
func openAPIName(t reflect.Type) string {
	if named, ok := reflect.New(t).Elem().Interface().(interface{ OpenAPIModelName() string }); ok {
		return named.OpenAPIModelName()
	}
	// k8s.io/api/core/v1 becomes io.k8s.api.core.v1.
	host, rest, _ := strings.Cut(t.PkgPath(), "/")
	labels := strings.Split(host, ".")
	for i, j := 0, len(labels)-1; i < j; i, j = i+1, j-1 {
		labels[i], labels[j] = labels[j], labels[i]
	}
	return strings.Join(labels, ".") + "." + strings.ReplaceAll(rest, "/", ".") + "." + t.Name()
}
