package main

import (
	"fmt"
	"log"
	"reflect"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// filler sets every field of an object. The codecs' tests fill values by the same rules, so that only hashes of the
// results need to be kept.
type filler struct {
	count int64
	open  map[reflect.Type]bool
}

func (f *filler) next() int64 {
	f.count++
	return f.count
}

var fillStrings = []string{"s%d", "<%d>&\u2028", "é%d\"\\", "%d", "true%d", "a: %d", "line %d\nand\tmore\n"}

var fillQuantities = []string{"%dm", "%dMi", "%dk", "%de3", "%d.5", "%dGi"}

func (f *filler) fill(v reflect.Value) {
	t := v.Type()
	if t.Kind() == reflect.Pointer {
		if f.open[t.Elem()] {
			return
		}
		v.Set(reflect.New(t.Elem()))
		f.fill(v.Elem())
		return
	}
	if f.special(v) {
		return
	}
	switch t.Kind() {
	case reflect.String:
		n := f.next()
		v.SetString(fmt.Sprintf(fillStrings[n%int64(len(fillStrings))], n))
	case reflect.Bool:
		f.next()
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		n := f.next()
		if n%5 == 0 {
			n = -n
		}
		v.SetInt(n)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.next() % 200))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(f.next()) + 0.25)
	case reflect.Interface:
		v.Set(reflect.ValueOf(fmt.Sprintf("any%d", f.next())))
	case reflect.Slice:
		f.slice(v)
	case reflect.Map:
		f.mapping(v)
	case reflect.Struct:
		f.open[t] = true
		for i := range t.NumField() {
			if _, _, ok := jsonTag(t.Field(i)); ok {
				f.fill(v.Field(i))
			}
		}
		f.open[t] = false
	default:
		log.Fatalf("cannot fill %v", t)
	}
}

func (f *filler) slice(v reflect.Value) {
	t := v.Type()
	if t.Elem().Kind() == reflect.Uint8 {
		v.SetBytes(fmt.Appendf(nil, "b%d", f.next()))
		return
	}
	if f.open[t.Elem()] {
		return
	}
	length := 2
	if _, special := specials[t.Elem()]; t.Elem().Kind() == reflect.Struct && !special {
		length = 1
	}
	v.Set(reflect.MakeSlice(t, length, length))
	for i := range length {
		f.fill(v.Index(i))
	}
}

func (f *filler) mapping(v reflect.Value) {
	t := v.Type()
	if f.open[t.Elem()] {
		return
	}
	v.Set(reflect.MakeMap(t))
	for range 2 {
		key := reflect.New(t.Key()).Elem()
		key.SetString(fmt.Sprintf("k%d", f.next()))
		value := reflect.New(t.Elem()).Elem()
		f.fill(value)
		v.SetMapIndex(key, value)
	}
}

func (f *filler) special(v reflect.Value) bool {
	set := func(value any) { v.Set(reflect.ValueOf(value)) }
	switch v.Interface().(type) {
	case metav1.Time:
		set(metav1.Unix(1_000_000_000+f.next()*61, 0))
	case metav1.MicroTime:
		n := f.next()
		set(metav1.UnixMicro(1_000_000_000+n*61, n*1000))
	case metav1.Duration:
		set(metav1.Duration{Duration: time.Duration(f.next()) * 1_500_000_001})
	case resource.Quantity:
		n := f.next()
		set(resource.MustParse(fmt.Sprintf(fillQuantities[n%int64(len(fillQuantities))], n)))
	case intstr.IntOrString:
		if n := f.next(); n%2 == 0 {
			set(intstr.FromInt32(int32(n)))
		} else {
			set(intstr.FromString(fmt.Sprintf("%d%%", n)))
		}
	case runtime.RawExtension:
		set(runtime.RawExtension{Raw: fmt.Appendf(nil, `{"raw":%d}`, f.next())})
	case metav1.FieldsV1:
		fields := metav1.FieldsV1{}
		fields.SetRawBytes(fmt.Appendf(nil, `{"f:%d":{}}`, f.next()))
		set(fields)
	case apiextensionsv1.JSON:
		set(apiextensionsv1.JSON{Raw: fmt.Appendf(nil, `"json%d"`, f.next())})
	case apiextensionsv1.JSONSchemaPropsOrBool:
		f.next()
		set(apiextensionsv1.JSONSchemaPropsOrBool{Allows: true})
	case apiextensionsv1.JSONSchemaPropsOrArray:
		f.next()
		set(apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{}})
	case apiextensionsv1.JSONSchemaPropsOrStringArray:
		set(apiextensionsv1.JSONSchemaPropsOrStringArray{Property: []string{fmt.Sprintf("p%d", f.next())}})
	default:
		return false
	}
	return true
}
