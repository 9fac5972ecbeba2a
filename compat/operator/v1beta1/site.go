// Package v1beta1 is the version of Site that came first: one page, and the number of servers as text.
package v1beta1

import (
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"

	v1 "mica.dev/compat/operator/v1"
)

// GroupVersion is where Sites are served.
var GroupVersion = schema.GroupVersion{Group: "fleet.example.com", Version: "v1beta1"}

// otherPages keeps what this version has no field for, so that a client of it loses nothing.
const otherPages = "fleet.example.com/other-pages"

// AddToScheme makes the types known.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Site{}, &SiteList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Site is a web site of one page.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SiteSpec      `json:"spec"`
	Status v1.SiteStatus `json:"status,omitzero"`
}

// SiteSpec is what somebody wants.
type SiteSpec struct {
	Size  string `json:"size,omitempty"`
	Image string `json:"image,omitempty"`
	Index string `json:"index,omitempty"`
}

// SiteList is many Sites.
type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Site `json:"items"`
}

// ConvertTo makes the stored version.
func (s *Site) ConvertTo(hub conversion.Hub) error {
	out := hub.(*v1.Site)
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status = s.Status
	out.Spec.Image = s.Spec.Image
	if s.Spec.Size != "" {
		size, err := strconv.ParseInt(s.Spec.Size, 10, 32)
		if err != nil {
			return fmt.Errorf("size %q is not a number", s.Spec.Size)
		}
		replicas := int32(size)
		out.Spec.Replicas = &replicas
	}
	if kept, found := out.Annotations[otherPages]; found {
		if err := json.Unmarshal([]byte(kept), &out.Spec.Pages); err != nil {
			return fmt.Errorf("annotation %s: %w", otherPages, err)
		}
		delete(out.Annotations, otherPages)
	}
	if s.Spec.Index != "" {
		if out.Spec.Pages == nil {
			out.Spec.Pages = map[string]string{}
		}
		out.Spec.Pages["index"] = s.Spec.Index
	}
	return nil
}

// ConvertFrom makes this version.
func (s *Site) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*v1.Site).DeepCopy()
	s.ObjectMeta, s.Status, s.Spec = from.ObjectMeta, from.Status, SiteSpec{Image: from.Spec.Image}
	if from.Spec.Replicas != nil {
		s.Spec.Size = strconv.Itoa(int(*from.Spec.Replicas))
	}
	s.Spec.Index = from.Spec.Pages["index"]
	delete(from.Spec.Pages, "index")
	if len(from.Spec.Pages) > 0 {
		kept, err := json.Marshal(from.Spec.Pages)
		if err != nil {
			return err
		}
		if s.Annotations == nil {
			s.Annotations = map[string]string{}
		}
		s.Annotations[otherPages] = string(kept)
	}
	return nil
}

// DeepCopy copies a Site.
func (s *Site) DeepCopy() *Site {
	out := &Site{TypeMeta: s.TypeMeta, Spec: s.Spec, Status: (&v1.Site{Status: s.Status}).DeepCopy().Status}
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
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
