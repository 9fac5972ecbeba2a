package operator

import (
	"bytes"
	"io"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	v1 "mica.dev/compat/operator/v1"
)

// ownServer skips what only a server that envtest started can do.
func ownServer(t *testing.T) {
	if environment.ControlPlane.APIServer == nil {
		t.Skip("the server is somebody else's")
	}
}

func TestAUserOfTheEnvironmentMayDoWhatItsRoleSays(t *testing.T) {
	ownServer(t)
	s := begin(t)
	s.created("a", nil)
	somebody, err := environment.AddUser(envtest.User{Name: "somebody", Groups: []string{"readers"}}, nil)
	s.must(err)
	theirs, err := client.New(somebody.Config(), client.Options{Scheme: NewScheme()})
	s.must(err)
	list := &v1.SiteList{}
	err = theirs.List(s.ctx, list, client.InNamespace(s.namespace))
	s.refused(err, `sites.fleet.example.com is forbidden: User "somebody" cannot list resource "sites" in API group "fleet.example.com" in the namespace "`+s.namespace+`"`)
	s.must(direct.Create(s.ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader", Namespace: s.namespace},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"fleet.example.com"}, Resources: []string{"sites"}, Verbs: []string{"list"}}},
	}))
	s.must(direct.Create(s.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers", Namespace: s.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "readers"}},
	}))
	s.until("the role is in force", func() bool { return theirs.List(s.ctx, list, client.InNamespace(s.namespace)) == nil })
	if len(list.Items) != 1 {
		t.Errorf("the list is %v", list.Items)
	}
	if err := theirs.Create(s.ctx, s.site("b", nil)); !apierrors.IsForbidden(err) {
		t.Errorf("creating gives %v", err)
	}
}

func TestTheEnvironmentsKubectlSeesTheSite(t *testing.T) {
	ownServer(t)
	s := begin(t)
	site := s.created("a", nil)
	s.eventually(site, "the operator has seen it", func() bool { return site.Status.ObservedGeneration > 0 })
	admin, err := environment.AddUser(envtest.User{Name: "boss", Groups: []string{"system:masters"}}, nil)
	s.must(err)
	kubectl, err := admin.Kubectl()
	s.must(err)
	out, complaints, err := kubectl.Run("get", "st", "a", "-n", s.namespace)
	if err != nil {
		t.Fatalf("%v: %s", err, text(complaints))
	}
	if fields := strings.Fields(text(out)); strings.Join(fields, " ") != "NAME WANTED READY a 1 False" {
		t.Errorf("kubectl shows %q", fields)
	}
}

func text(from io.Reader) string {
	buffer := &bytes.Buffer{}
	if _, err := buffer.ReadFrom(from); err != nil {
		return err.Error()
	}
	return buffer.String()
}
