package operator

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "mica.dev/compat/operator/v1"
)

func (s story) deployment(site *v1.Site) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: site.Name, Namespace: site.Namespace}}
}

func TestASiteOwnsItsPagesAndItsDeployment(t *testing.T) {
	s := begin(t)
	site := s.created("a", nil)
	pages := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a-pages", Namespace: s.namespace}}
	s.eventually(pages, "the pages are there", func() bool { return pages.Data["index"] == "hello" })
	deployment := s.deployment(site)
	s.eventually(deployment, "the deployment is there", func() bool { return true })
	for _, owned := range []client.Object{pages, deployment} {
		if !metav1.IsControlledBy(owned, site) {
			t.Errorf("%T is not the site's: %v", owned, owned.GetOwnerReferences())
		}
	}
	if deployment.Spec.Template.Spec.Containers[0].Image != defaultImage || *deployment.Spec.RevisionHistoryLimit != 10 {
		t.Errorf("the deployment is %v", deployment.Spec)
	}
}

func TestAChangeReachesTheDeploymentAndDriftIsUndone(t *testing.T) {
	s := begin(t)
	site := s.created("a", nil)
	deployment := s.deployment(site)
	s.eventually(deployment, "it has one server", func() bool { return *deployment.Spec.Replicas == 1 })
	s.must(direct.Patch(s.ctx, site, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":3}}`))))
	s.eventually(deployment, "it has three servers", func() bool { return *deployment.Spec.Replicas == 3 })
	s.must(direct.Patch(s.ctx, deployment, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":7}}`))))
	s.eventually(deployment, "it has three servers again", func() bool { return *deployment.Spec.Replicas == 3 })
	s.must(direct.Delete(s.ctx, deployment))
	gone := deployment.UID
	s.eventually(deployment, "it was made again", func() bool { return deployment.UID != gone })
}

func TestConditionsFollowTheDeployment(t *testing.T) {
	s := begin(t)
	site := s.created("a", nil)
	s.eventually(site, "it is not ready", func() bool { return meta.IsStatusConditionFalse(site.Status.Conditions, ready) })
	first := meta.FindStatusCondition(site.Status.Conditions, ready)
	deployment := s.deployment(site)
	s.must(direct.Get(s.ctx, client.ObjectKeyFromObject(deployment), deployment))
	before := deployment.DeepCopy()
	deployment.Status = appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1}
	s.must(direct.Status().Patch(s.ctx, deployment, client.StrategicMergeFrom(before)))
	s.eventually(site, "it is ready", func() bool { return meta.IsStatusConditionTrue(site.Status.Conditions, ready) })
	now := meta.FindStatusCondition(site.Status.Conditions, ready)
	if now.Reason != "Serving" || now.LastTransitionTime.Before(&first.LastTransitionTime) {
		t.Errorf("the condition went from %v to %v", first, now)
	}
	if site.Status.ObservedGeneration != site.Generation || site.Generation != 1 {
		t.Errorf("generation %d, observed %d: a status is no change of the spec", site.Generation, site.Status.ObservedGeneration)
	}
	scale := &unstructuredScale{}
	s.must(scale.read(s, site))
	if scale.wanted != 1 || scale.present != 1 {
		t.Errorf("the scale is %+v", scale)
	}
}

func TestAFinalizerHoldsASiteUntilItIsForgotten(t *testing.T) {
	s := begin(t)
	site := s.created("a", nil)
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: registry, Namespace: s.namespace}}
	s.eventually(list, "the site is registered", func() bool { return list.Data["a"] == string(site.UID) })
	s.changed(site, func() { site.Finalizers = append(site.Finalizers, "example.com/another") })
	s.must(direct.Delete(s.ctx, site))
	s.eventually(list, "the site is forgotten", func() bool { return list.Data["a"] == "" })
	s.eventually(site, "only the other finalizer holds", func() bool {
		return !site.DeletionTimestamp.IsZero() && len(site.Finalizers) == 1 && site.Finalizers[0] == "example.com/another"
	})
	s.changed(site, func() { site.Finalizers = nil })
	if err := direct.Get(s.ctx, client.ObjectKeyFromObject(site), site); !apierrors.IsNotFound(err) {
		t.Errorf("the site is still there: %v", err)
	}
}

func TestSitesAreSelectedByField(t *testing.T) {
	s := begin(t)
	s.created("a", func(site *v1.Site) { site.Spec.Image = "one" })
	s.created("b", func(site *v1.Site) { site.Spec.Image = "two" })
	list := &v1.SiteList{}
	s.must(direct.List(s.ctx, list, client.InNamespace(s.namespace), client.MatchingFields{"spec.image": "two"}))
	if len(list.Items) != 1 || list.Items[0].Name != "b" {
		t.Errorf("found %v", list.Items)
	}
}

func TestARestartedManagerCatchesUp(t *testing.T) {
	s := begin(t)
	other := func(site *v1.Site) { site.Labels = map[string]string{class: s.namespace} }
	run := func() (stop func()) {
		mgr, err := newManager(s.namespace, ctrl.Options{})
		s.must(err)
		return start(mgr)
	}
	stop := run()
	kept, lost := s.created("kept", other), s.created("lost", other)
	s.eventually(s.deployment(kept), "the first is served", func() bool { return true })
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: registry, Namespace: s.namespace}}
	s.eventually(list, "both are registered", func() bool { return len(list.Data) == 2 })
	stop()
	// While nobody looks after them: one is deleted, one changed, one made.
	s.must(direct.Delete(s.ctx, lost))
	s.must(direct.Patch(s.ctx, kept, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":2}}`))))
	made := s.created("made", other)
	s.must(direct.Get(s.ctx, client.ObjectKeyFromObject(lost), lost))
	stop = run()
	defer stop()
	s.eventually(list, "the deleted is forgotten and the made registered", func() bool {
		return list.Data["lost"] == "" && list.Data["made"] == string(made.UID)
	})
	deployment := s.deployment(kept)
	s.eventually(deployment, "the change is there", func() bool { return *deployment.Spec.Replicas == 2 })
}

func TestOfTwoManagersOneLeadsAndTheOtherTakesOver(t *testing.T) {
	s := begin(t)
	lease, renew, retry := 4*time.Second, 3*time.Second, 200*time.Millisecond
	run := func() (mgr ctrl.Manager, stop func()) {
		mgr, err := newManager(s.namespace, ctrl.Options{
			LeaderElection: true, LeaderElectionID: "fleet", LeaderElectionNamespace: s.namespace, LeaderElectionReleaseOnCancel: true,
			LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry,
		})
		s.must(err)
		return mgr, start(mgr)
	}
	other := func(site *v1.Site) { site.Labels = map[string]string{class: s.namespace} }
	first, stop := run()
	<-first.Elected()
	second, stopSecond := run()
	defer stopSecond()
	s.eventually(s.deployment(s.created("a", other)), "the first serves", func() bool { return true })
	select {
	case <-second.Elected():
		t.Fatal("both lead")
	default:
	}
	stop()
	select {
	case <-second.Elected():
	case <-time.After(patience):
		t.Fatal("nobody leads")
	}
	s.eventually(s.deployment(s.created("b", other)), "the second serves", func() bool { return true })
}
