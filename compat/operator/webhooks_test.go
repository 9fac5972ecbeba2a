package operator

import (
	"context"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "mica.dev/compat/operator/v1"
	"mica.dev/compat/operator/v1beta1"
)

// unstructuredScale is what the subresource scale of a custom kind says.
type unstructuredScale struct{ wanted, present int32 }

func (u *unstructuredScale) read(s story, site *v1.Site) error {
	scale := &autoscalingv1.Scale{}
	if err := direct.SubResource("scale").Get(s.ctx, site, scale); err != nil {
		return err
	}
	u.wanted, u.present = scale.Spec.Replicas, scale.Status.Replicas
	return nil
}

func TestTheSchemaAndTheWebhookFillInDefaults(t *testing.T) {
	s := begin(t)
	site := s.created("a", nil)
	if site.Spec.Replicas == nil || *site.Spec.Replicas != 1 || site.Spec.Image != defaultImage {
		t.Errorf("the site is %+v", site.Spec)
	}
	if site.Annotations["fleet.example.com/made-by"] == "" {
		t.Error("the webhook was not told who asks")
	}
}

func TestTheWebhookRefusesAndWarns(t *testing.T) {
	s := begin(t)
	many := int32(11)
	const denied = `admission webhook "validate.sites.fleet.example.com" denied the request: `
	err := direct.Create(s.ctx, s.site("a", func(site *v1.Site) { site.Spec.Replicas = &many }))
	s.refused(err, denied+"11 servers are too many, 10 are enough")
	if !apierrors.IsForbidden(err) {
		t.Errorf("the refusal is %v", err)
	}
	s.created("empty", func(site *v1.Site) { site.Spec.Pages = nil })
	if !warnings.has("a site without pages shows nothing") {
		t.Errorf("the warnings are %q", warnings.texts)
	}
	site := s.created("b", func(site *v1.Site) { site.Annotations = map[string]string{protected: ""} })
	s.refused(direct.Delete(s.ctx, site), denied+"b is protected")
	s.refused(direct.DeleteAllOf(s.ctx, &v1.Site{}, client.InNamespace(s.namespace)), denied+"b is protected")
	s.refused(direct.Patch(s.ctx, site, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":0}}`))),
		denied+"a protected site cannot be shut down")
	s.must(direct.Patch(s.ctx, site, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":null}}`))))
	s.must(direct.Delete(s.ctx, site))
}

func TestTheSchemaRefusesBeforeAnyWebhookMay(t *testing.T) {
	s := begin(t)
	few := int32(-1)
	err := direct.Create(s.ctx, s.site("a", func(site *v1.Site) { site.Spec.Replicas = &few }))
	s.refused(err, "spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0")
	if !apierrors.IsInvalid(err) {
		t.Errorf("the refusal is %v", err)
	}
}

func TestADryRunIsAdmittedAndChangesNothing(t *testing.T) {
	s := begin(t)
	site := s.site("a", nil)
	s.must(direct.Create(s.ctx, site, client.DryRunAll))
	if site.Spec.Image != defaultImage {
		t.Errorf("the webhook was not asked: %+v", site.Spec)
	}
	if err := direct.Get(s.ctx, client.ObjectKeyFromObject(site), site); !apierrors.IsNotFound(err) {
		t.Errorf("the site is there: %v", err)
	}
}

func TestOldAndNewClientsSeeOneSite(t *testing.T) {
	s := begin(t)
	old := &v1beta1.Site{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: s.namespace}, Spec: v1beta1.SiteSpec{Size: "2", Index: "hello"}}
	s.must(direct.Create(s.ctx, old))
	if old.Spec.Image != defaultImage {
		t.Errorf("the webhook for v1 was not asked about v1beta1: %+v", old.Spec)
	}
	if !warnings.has("fleet.example.com/v1beta1 Site is deprecated; use fleet.example.com/v1 Site") {
		t.Errorf("the warnings are %q", warnings.texts)
	}
	site := s.site("a", nil)
	s.eventually(site, "the operator has seen it", func() bool { return site.Status.ObservedGeneration > 0 })
	if *site.Spec.Replicas != 2 || site.Spec.Pages["index"] != "hello" {
		t.Errorf("v1 is %+v", site.Spec)
	}
	s.changed(site, func() { site.Spec.Pages["about"] = "us" })
	// A client of the old version changes what it knows, and loses nothing of the rest.
	s.changed(old, func() { old.Spec.Index = "changed" })
	s.must(direct.Get(s.ctx, client.ObjectKeyFromObject(site), site))
	if len(site.Spec.Pages) != 2 || site.Spec.Pages["index"] != "changed" || site.Spec.Pages["about"] != "us" {
		t.Errorf("v1 is %+v", site.Spec)
	}
	list := &v1beta1.SiteList{}
	s.must(direct.List(s.ctx, list, client.InNamespace(s.namespace)))
	if len(list.Items) != 1 || list.Items[0].Spec.Size != "2" {
		t.Errorf("the list is %+v", list.Items)
	}
	bad := &v1beta1.Site{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: s.namespace}, Spec: v1beta1.SiteSpec{Size: "few"}}
	s.refused(direct.Create(s.ctx, bad), `size "few" is not a number`)
}

func TestAnOldWatchTellsWhatANewClientDoes(t *testing.T) {
	s := begin(t)
	follow, err := client.NewWithWatch(config, client.Options{Scheme: NewScheme()})
	s.must(err)
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	events, err := follow.Watch(ctx, &v1beta1.SiteList{}, client.InNamespace(s.namespace))
	s.must(err)
	defer events.Stop()
	three := int32(3)
	s.created("a", func(site *v1.Site) { site.Spec.Replicas = &three })
	event := <-events.ResultChan()
	site, is := event.Object.(*v1beta1.Site)
	if event.Type != watch.Added || !is || site.Spec.Size != "3" || site.Spec.Index != "hello" {
		t.Errorf("the event is %v %+v", event.Type, event.Object)
	}
}
