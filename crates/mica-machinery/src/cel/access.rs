//! The environment of authorization: what match conditions of authorizers' webhooks may name.
//!
//! One variable, `request`, is the spec of a SubjectAccessReview. Names, types and texts are those of
//! `apiserver/pkg/authorization/cel`.

use std::sync::{Arc, LazyLock};

use super::admission::Refusal;
use super::decl::DeclType;
use super::env::{CompileError, Env, Program};
use super::types::Type;

/// Compiles a match condition.
pub fn compile(source: &str) -> Result<Program, Refusal> {
    let compiled = ENV.compile(source);
    let found = match &compiled {
        Ok(program) => program.result_type(),
        // The type is looked at first.
        Err(CompileError::Instantiation { result_type, .. }) => result_type,
        Err(CompileError::Issues(errors)) => return Err(Refusal::Compilation(errors.clone())),
    };
    if *found != Type::Bool {
        return Err(Refusal::Type {
            wanted: "bool",
            found: found.full_name(),
        });
    }
    compiled.map_err(|error| Refusal::Instantiation(error.to_string()))
}

static ENV: LazyLock<Env> = LazyLock::new(|| Env::new().with_declared("request", request()));

fn request() -> Arc<DeclType> {
    let strings = |fields: &[&'static str]| -> Vec<_> {
        let text = |field: &&'static str| (*field, opaque(Type::String));
        fields.iter().map(text).collect()
    };
    let mut requirement = strings(&["key", "operator"]);
    requirement.push(("values", opaque(Type::list(Type::String))));
    let requirement = object("kubernetes.SelectorRequirement", &requirement);
    let selector = |name: &str| {
        let requirements = DeclType {
            element: Some(requirement.clone()),
            ..DeclType::opaque(Type::list(requirement.cel.clone()))
        };
        let fields = [
            ("rawSelector", opaque(Type::String)),
            ("requirements", Arc::new(requirements)),
        ];
        object(name, &fields)
    };
    let mut resource = strings(&[
        "namespace",
        "verb",
        "group",
        "version",
        "resource",
        "subresource",
        "name",
    ]);
    resource.push(("fieldSelector", selector("kubernetes.FieldSelectorAttributes")));
    resource.push(("labelSelector", selector("kubernetes.LabelSelectorAttributes")));
    let path = strings(&["path", "verb"]);
    object(
        "kubernetes.SubjectAccessReviewSpec",
        &[
            ("resourceAttributes", object("kubernetes.ResourceAttributes", &resource)),
            (
                "nonResourceAttributes",
                object("kubernetes.NonResourceAttributes", &path),
            ),
            ("user", opaque(Type::String)),
            ("groups", opaque(Type::list(Type::String))),
            ("extra", opaque(Type::map(Type::String, Type::list(Type::String)))),
            ("uid", opaque(Type::String)),
        ],
    )
}

fn opaque(of: Type) -> Arc<DeclType> {
    Arc::new(DeclType::opaque(of))
}

fn object(name: &str, fields: &[(&str, Arc<DeclType>)]) -> Arc<DeclType> {
    let fields = fields
        .iter()
        .map(|(name, of)| ((*name).to_owned(), of.clone()))
        .collect();
    Arc::new(DeclType::fields_of(name, fields))
}
