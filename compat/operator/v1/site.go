// Package v1 is the version of Site that is stored, and that the others are converted to and from.
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is where Sites are served.
var GroupVersion = schema.GroupVersion{Group: "fleet.example.com", Version: "v1"}

// AddToScheme makes the types known.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Site{}, &SiteList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Site is a web site: pages, and so many servers of them.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SiteSpec   `json:"spec"`
	Status SiteStatus `json:"status,omitzero"`
}

// SiteSpec is what somebody wants.
type SiteSpec struct {
	// Replicas defaults in the schema, Image in a webhook.
	Replicas *int32            `json:"replicas,omitempty"`
	Image    string            `json:"image,omitempty"`
	Pages    map[string]string `json:"pages,omitempty"`
}

// SiteStatus is what there is.
type SiteStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	ReadyReplicas      int32              `json:"readyReplicas,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// SiteList is many Sites.
type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Site `json:"items"`
}

// Hub says that other versions are converted through this one.
func (*Site) Hub() {}

// DeepCopyInto copies a Site.
func (s *Site) DeepCopyInto(out *Site) {
	*out = *s
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if s.Spec.Replicas != nil {
		replicas := *s.Spec.Replicas
		out.Spec.Replicas = &replicas
	}
	if s.Spec.Pages != nil {
		out.Spec.Pages = make(map[string]string, len(s.Spec.Pages))
		for name, text := range s.Spec.Pages {
			out.Spec.Pages[name] = text
		}
	}
	if s.Status.Conditions != nil {
		out.Status.Conditions = make([]metav1.Condition, len(s.Status.Conditions))
		copy(out.Status.Conditions, s.Status.Conditions)
	}
}

// DeepCopy copies a Site.
func (s *Site) DeepCopy() *Site {
	out := &Site{}
	s.DeepCopyInto(out)
	return out
}

// DeepCopyObject copies a Site.
func (s *Site) DeepCopyObject() runtime.Object { return s.DeepCopy() }

// DeepCopyObject copies a list of Sites.
func (l *SiteList) DeepCopyObject() runtime.Object {
	out := &SiteList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return out
}
