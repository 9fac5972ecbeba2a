package operator

import (
	"context"
	"errors"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "mica.dev/compat/operator/v1"
)

const (
	// defaultImage is served by who names none.
	defaultImage = "example.com/server:stable"
	// mostReplicas is more than anybody needs.
	mostReplicas = 10
	// protected is the annotation that keeps a Site from being deleted.
	protected = "fleet.example.com/protected"
)

// SetupWebhooks answers at the paths that config/webhooks.yaml names, and at /convert.
func SetupWebhooks(mgr ctrl.Manager) error {
	return ctrl.NewWebhookManagedBy(mgr, &v1.Site{}).WithDefaulter(defaulter{}).WithValidator(validator{}).Complete()
}

type defaulter struct{}

func (defaulter) Default(ctx context.Context, site *v1.Site) error {
	if site.Spec.Image == "" {
		site.Spec.Image = defaultImage
	}
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return err
	}
	if request.Operation == "CREATE" {
		if site.Annotations == nil {
			site.Annotations = map[string]string{}
		}
		site.Annotations["fleet.example.com/made-by"] = request.UserInfo.Username
	}
	return nil
}

type validator struct{}

func (validator) ValidateCreate(_ context.Context, site *v1.Site) (admission.Warnings, error) {
	return check(site)
}

func (validator) ValidateUpdate(_ context.Context, old, site *v1.Site) (admission.Warnings, error) {
	if _, is := old.Annotations[protected]; is && wanted(site) == 0 {
		return nil, errors.New("a protected site cannot be shut down")
	}
	return check(site)
}

func (validator) ValidateDelete(_ context.Context, site *v1.Site) (admission.Warnings, error) {
	if _, is := site.Annotations[protected]; is {
		return nil, fmt.Errorf("%s is protected", site.Name)
	}
	return nil, nil
}

func check(site *v1.Site) (admission.Warnings, error) {
	if wanted(site) > mostReplicas {
		return nil, fmt.Errorf("%d servers are too many, %d are enough", wanted(site), mostReplicas)
	}
	if len(site.Spec.Pages) == 0 {
		return admission.Warnings{"a site without pages shows nothing"}, nil
	}
	return nil, nil
}
