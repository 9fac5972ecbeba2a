// Package operator is a small but real operator: it keeps a Deployment and a ConfigMap for every Site, reports how that goes,
// cleans up after Sites that are deleted, and answers the webhooks of their kind. It runs against any API server.
package operator

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	v1 "mica.dev/compat/operator/v1"
	"mica.dev/compat/operator/v1beta1"
)

const (
	// finalizer holds a Site until the registry has forgotten it.
	finalizer = "fleet.example.com/registered"
	// registry is the ConfigMap with a line for every Site of its namespace. No Site owns it.
	registry = "site-registry"
	// class is the label that says which operator looks after a Site.
	class = "fleet.example.com/class"
	ready = "Ready"
)

// NewScheme knows the built-in kinds and both versions of Site.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}

// Reconciler brings about what Sites of a class ask for.
type Reconciler struct {
	client.Client
	Class string
}

// SetupWithManager says what is watched.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	mine := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetLabels()[class] == r.Class })
	again := true
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1.Site{}, builder.WithPredicates(mine)).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{SkipNameValidation: &again}).
		Complete(r)
}

// Reconcile looks at one Site and does what is missing.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	site := &v1.Site{}
	if err := r.Get(ctx, request.NamespacedName, site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if site.Labels[class] != r.Class {
		return ctrl.Result{}, nil
	}
	if !site.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.forget(ctx, site)
	}
	if controllerutil.AddFinalizer(site, finalizer) {
		// The update's event brings us back.
		return ctrl.Result{}, r.Update(ctx, site)
	}
	if err := r.register(ctx, site); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.pages(ctx, site); err != nil {
		return ctrl.Result{}, err
	}
	deployment, err := r.deployment(ctx, site)
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.report(ctx, site, deployment)
}

// register and forget patch single keys, so that Sites do not hinder each other.
func (r *Reconciler) register(ctx context.Context, site *v1.Site) error {
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: registry, Namespace: site.Namespace}}
	if err := r.Create(ctx, list); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	patch := fmt.Appendf(nil, `{"data":{%q:%q}}`, site.Name, string(site.UID))
	return r.Patch(ctx, list, client.RawPatch("application/merge-patch+json", patch))
}

func (r *Reconciler) forget(ctx context.Context, site *v1.Site) error {
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: registry, Namespace: site.Namespace}}
	patch := fmt.Appendf(nil, `{"data":{%q:null}}`, site.Name)
	if err := r.Patch(ctx, list, client.RawPatch("application/merge-patch+json", patch)); client.IgnoreNotFound(err) != nil {
		return err
	}
	if controllerutil.RemoveFinalizer(site, finalizer) {
		return client.IgnoreNotFound(r.Update(ctx, site))
	}
	return nil
}

func (r *Reconciler) pages(ctx context.Context, site *v1.Site) error {
	pages := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: site.Name + "-pages", Namespace: site.Namespace}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, pages, func() error {
		pages.Data = site.Spec.Pages
		return controllerutil.SetControllerReference(site, pages, r.Scheme())
	})
	return err
}

func (r *Reconciler) deployment(ctx context.Context, site *v1.Site) (*appsv1.Deployment, error) {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: site.Name, Namespace: site.Namespace}}
	labels := map[string]string{"fleet.example.com/site": site.Name}
	_, err := controllerutil.CreateOrPatch(ctx, r.Client, deployment, func() error {
		replicas := wanted(site)
		deployment.Spec.Replicas = &replicas
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		deployment.Spec.Template.Labels = labels
		if len(deployment.Spec.Template.Spec.Containers) != 1 {
			deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web"}}
		}
		deployment.Spec.Template.Spec.Containers[0].Image = site.Spec.Image
		return controllerutil.SetControllerReference(site, deployment, r.Scheme())
	})
	return deployment, err
}

func (r *Reconciler) report(ctx context.Context, site *v1.Site, deployment *appsv1.Deployment) error {
	before := site.DeepCopy()
	condition := metav1.Condition{Type: ready, Status: metav1.ConditionFalse, Reason: "Waiting", ObservedGeneration: site.Generation,
		Message: fmt.Sprintf("%d of %d servers are ready", deployment.Status.ReadyReplicas, wanted(site))}
	if deployment.Status.ReadyReplicas >= wanted(site) {
		condition.Status, condition.Reason = metav1.ConditionTrue, "Serving"
	}
	meta.SetStatusCondition(&site.Status.Conditions, condition)
	site.Status.ReadyReplicas, site.Status.ObservedGeneration = deployment.Status.ReadyReplicas, site.Generation
	return r.Status().Patch(ctx, site, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// wanted is how many servers a Site asks for. The schema's default is not there yet when an older version is admitted.
func wanted(site *v1.Site) int32 {
	if site.Spec.Replicas == nil {
		return 1
	}
	return *site.Spec.Replicas
}
