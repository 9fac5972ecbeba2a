package main

import (
	"log"
	"reflect"
	"sort"

	admissionv1 "k8s.io/api/admission/v1"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apidiscoveryv2beta1 "k8s.io/api/apidiscovery/v2beta1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

type kind struct {
	group, version, kind string
	typ                  reflect.Type
}

// everywhere is the group under which kinds stand that every group version has.
const everywhere = "*"

// collectKinds lists every kind of every group, sorted.
func collectKinds() []kind {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientscheme.AddToScheme,
		apiextensionsv1.AddToScheme,
		apiregistrationv1.AddToScheme,
		admissionv1.AddToScheme,
		apidiscoveryv2.AddToScheme,
		apidiscoveryv2beta1.AddToScheme,
		metav1.AddMetaToScheme,
		metav1beta1.AddMetaToScheme,
	} {
		if err := add(scheme); err != nil {
			log.Fatal(err)
		}
	}

	shared := map[reflect.Type]bool{}
	for _, object := range []any{
		metav1.WatchEvent{}, metav1.ListOptions{}, metav1.GetOptions{}, metav1.DeleteOptions{}, metav1.CreateOptions{},
		metav1.UpdateOptions{}, metav1.PatchOptions{}, metav1.Status{}, metav1.APIVersions{}, metav1.APIGroupList{},
		metav1.APIGroup{}, metav1.APIResourceList{},
	} {
		shared[reflect.TypeOf(object)] = true
	}

	var kinds []kind
	for gvk, typ := range scheme.AllKnownTypes() {
		if gvk.Version == runtime.APIVersionInternal || shared[typ] {
			continue
		}
		kinds = append(kinds, kind{gvk.Group, gvk.Version, gvk.Kind, typ})
	}
	for typ := range shared {
		kinds = append(kinds, kind{everywhere, "v1", typ.Name(), typ})
	}
	sort.Slice(kinds, func(i, j int) bool {
		a, b := kinds[i], kinds[j]
		if a.group != b.group {
			return a.group < b.group
		}
		if a.version != b.version {
			return a.version < b.version
		}
		return a.kind < b.kind
	})
	return kinds
}
