//! The environments of admission: what expressions of policies and match conditions may name, and what each must yield.
//!
//! Names, types and texts are those of `apiserver/pkg/admission/plugin/cel`. The object under review has no declared type
//! here: upstream checks policies against schemas only to warn.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use super::decl::DeclType;
use super::env::{CompileError, Env, Program};
use super::source::CompileErrors;
use super::types::Type;

/// What an expression is for, which decides what it may name and must yield.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    MatchCondition,
    Validation,
    Message,
    AuditAnnotation,
    Variable,
    ApplyConfiguration,
    JsonPatch,
}

/// Whether `params` may be named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Params {
    Declared,
    Absent,
}

/// What `params` is where objects have types.
#[derive(Clone, Debug)]
pub enum ParamType {
    Absent,
    Any,
    Of(Arc<DeclType>),
}

/// Why an expression cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("compilation failed: {0}")]
    Compilation(CompileErrors),
    #[error("must evaluate to {wanted} but got {found}")]
    Type { wanted: &'static str, found: String },
    /// The only one that upstream does not blame on the expression.
    #[error("program instantiation failed: {0}")]
    Instantiation(String),
}

/// Compiles the expressions of one policy, or of one webhook.
#[derive(Debug)]
pub struct Compiler {
    env: Env,
    /// Types of the policy's variables so far; absent where there is no `variables` to name.
    variables: Option<BTreeMap<String, Arc<DeclType>>>,
}

impl Compiler {
    /// For expressions that cannot name variables.
    pub fn new(params: Params) -> Self {
        let env = BASE.clone();
        let env = match params {
            Params::Declared => env.with_variable("params", Type::Dyn),
            Params::Absent => env,
        };
        Self { env, variables: None }
    }

    /// For expressions about objects of a known type, variables included.
    pub fn typed(object: Arc<DeclType>, params: &ParamType) -> Self {
        let env = BASE
            .clone()
            .with_declared("object", object.clone())
            .with_declared("oldObject", object);
        let env = match params {
            ParamType::Absent => env,
            ParamType::Any => env.with_variable("params", Type::Dyn),
            ParamType::Of(ty) => env.with_declared("params", ty.clone()),
        };
        Self {
            env,
            variables: Some(BTreeMap::new()),
        }
    }

    /// For expressions that can name `variables`, as far as they were compiled before.
    pub fn with_variables(params: Params) -> Self {
        Self {
            variables: Some(BTreeMap::new()),
            ..Self::new(params)
        }
    }

    /// Compiles a variable and lets what comes later name it, also if it cannot be used: that is one error and not many.
    pub fn compile_variable(&mut self, name: &str, source: &str) -> Result<Program, Refusal> {
        let compiled = self.compile(source, Purpose::Variable);
        let of = compiled
            .as_ref()
            .map_or(Type::Dyn, |program| field_type(program.result_type()));
        if let Some(variables) = &mut self.variables {
            variables.insert(name.to_owned(), Arc::new(DeclType::opaque(of)));
        }
        compiled
    }

    pub fn compile(&self, source: &str, purpose: Purpose) -> Result<Program, Refusal> {
        let (program, found) = match self.env(purpose).compile(source) {
            Ok(program) => {
                let found = program.result_type().clone();
                (Ok(program), found)
            }
            Err(CompileError::Issues(errors)) => return Err(Refusal::Compilation(errors)),
            // The type is looked at first.
            Err(CompileError::Instantiation { why, result_type }) => (Err(Refusal::Instantiation(why)), result_type),
        };
        let (fits, wanted) = match purpose {
            Purpose::Variable => (true, ""),
            Purpose::MatchCondition | Purpose::Validation => (found == Type::Bool, "bool"),
            Purpose::Message => (found == Type::String, "string"),
            Purpose::AuditAnnotation => (matches!(found, Type::String | Type::Null), "one of [string null_type]"),
            Purpose::ApplyConfiguration => (found == Type::object("Object"), "Object"),
            Purpose::JsonPatch => (found == Type::list(Type::object("JSONPatch")), "list(JSONPatch)"),
        };
        if fits {
            return program;
        }
        let found = found.full_name();
        Err(Refusal::Type { wanted, found })
    }

    fn env(&self, purpose: Purpose) -> Env {
        let mut env = self.env.clone();
        if purpose != Purpose::Message {
            env = env
                .with_variable("authorizer", Type::object("kubernetes.authorization.Authorizer"))
                .with_variable(
                    "authorizer.requestResource",
                    Type::object("kubernetes.authorization.ResourceCheck"),
                );
        }
        if matches!(purpose, Purpose::ApplyConfiguration | Purpose::JsonPatch) {
            env = env.with_mutation_types();
        }
        if let Some(variables) = &self.variables {
            let fields = DeclType::fields_of("kubernetes.variables", variables.clone());
            env = env.with_declared("variables", Arc::new(fields));
        }
        env
    }
}

/// The type that a variable has for those who name it: only scalars, lists and maps keep theirs.
fn field_type(of: &Type) -> Type {
    match of {
        Type::List(of) => Type::list(field_type(of)),
        Type::Map(key, value) => Type::map(field_type(key), field_type(value)),
        Type::Null
        | Type::Bool
        | Type::Int
        | Type::Uint
        | Type::Double
        | Type::String
        | Type::Bytes
        | Type::Duration
        | Type::Timestamp => of.clone(),
        _ => Type::Dyn,
    }
}

/// What every expression may name.
static BASE: LazyLock<Env> = LazyLock::new(|| {
    Env::new()
        .with_variable("object", Type::Dyn)
        .with_variable("oldObject", Type::Dyn)
        .with_declared("namespaceObject", namespace())
        .with_declared("request", request())
});

fn request() -> Arc<DeclType> {
    let strings = |name, fields: &[&'static str]| {
        let fields: Vec<_> = fields.iter().map(|field| (*field, opaque(Type::String))).collect();
        object(name, &fields)
    };
    let kind = strings("kubernetes.GroupVersionKind", &["group", "version", "kind"]);
    let resource = strings("kubernetes.GroupVersionResource", &["group", "version", "resource"]);
    let user = object(
        "kubernetes.UserInfo",
        &[
            ("username", opaque(Type::String)),
            ("uid", opaque(Type::String)),
            ("groups", opaque(Type::list(Type::String))),
            ("extra", opaque(Type::map(Type::String, Type::list(Type::String)))),
        ],
    );
    object(
        "kubernetes.AdmissionRequest",
        &[
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", opaque(Type::String)),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", opaque(Type::String)),
            ("name", opaque(Type::String)),
            ("namespace", opaque(Type::String)),
            ("operation", opaque(Type::String)),
            ("userInfo", user),
            ("dryRun", opaque(Type::Bool)),
            ("options", opaque(Type::Dyn)),
        ],
    )
}

/// A namespace has fewer fields here than it is served with, and `UID` is spelled so.
fn namespace() -> Arc<DeclType> {
    let metadata = object(
        "kubernetes.NamespaceMetadata",
        &[
            ("name", opaque(Type::String)),
            ("generateName", opaque(Type::String)),
            ("namespace", opaque(Type::String)),
            ("labels", opaque(Type::map(Type::String, Type::String))),
            ("annotations", opaque(Type::map(Type::String, Type::String))),
            ("UID", opaque(Type::String)),
            ("creationTimestamp", opaque(Type::Timestamp)),
            ("deletionGracePeriodSeconds", opaque(Type::Int)),
            ("deletionTimestamp", opaque(Type::Timestamp)),
            ("generation", opaque(Type::Int)),
            ("resourceVersion", opaque(Type::String)),
            ("finalizers", opaque(Type::list(Type::String))),
        ],
    );
    let condition = object(
        "kubernetes.NamespaceCondition",
        &[
            ("status", opaque(Type::String)),
            ("type", opaque(Type::String)),
            ("lastTransitionTime", opaque(Type::Timestamp)),
            ("message", opaque(Type::String)),
            ("reason", opaque(Type::String)),
        ],
    );
    let conditions = DeclType {
        element: Some(condition.clone()),
        ..DeclType::opaque(Type::list(condition.cel.clone()))
    };
    let spec = object(
        "kubernetes.NamespaceSpec",
        &[("finalizers", opaque(Type::list(Type::String)))],
    );
    let status = object(
        "kubernetes.NamespaceStatus",
        &[("conditions", Arc::new(conditions)), ("phase", opaque(Type::String))],
    );
    object(
        "kubernetes.Namespace",
        &[("metadata", metadata), ("spec", spec), ("status", status)],
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

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(source: &str, purpose: Purpose, expected: Expect) {
        let shown = match Compiler::new(Params::Absent).compile(source, purpose) {
            Ok(program) => program.result_type().full_name(),
            Err(refusal) => refusal.to_string(),
        };
        expected.assert_eq(&shown);
    }

    #[test]
    fn expressions_name_what_their_purpose_lets_them() {
        let everything = "request.userInfo.extra['a'][0] == request.kind.kind && oldObject == null \
             && namespaceObject.metadata.labels['a'] == 'b' && namespaceObject.status.conditions[0].type == 'x' \
             && authorizer.requestResource.check('create').allowed() \
             && authorizer.group('').resource('pods').check('get').allowed() && object.spec.a > 1";
        check(everything, Purpose::Validation, expect!["bool"]);
        let undeclared = expect![[r#"
            compilation failed: ERROR: <input>:1:1: undeclared reference to 'authorizer' (in container '')
             | authorizer == null ? '' : ''
             | ^"#]];
        check("authorizer == null ? '' : ''", Purpose::Message, undeclared);
        let undeclared = expect![[r#"
            compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables' (in container '')
             | variables.a
             | ^"#]];
        check("variables.a", Purpose::Validation, undeclared);
        let undefined = expect![[r#"
            compilation failed: ERROR: <input>:1:17: undefined field 'nickname'
             | request.userInfo.nickname == ''
             | ................^"#]];
        check("request.userInfo.nickname == ''", Purpose::Validation, undefined);
        let undeclared = expect![[r#"
            compilation failed: ERROR: <input>:1:7: undeclared reference to 'Object' (in container '')
             | Object{} == object
             | ......^"#]];
        check("Object{} == object", Purpose::Validation, undeclared);
    }

    #[test]
    fn expressions_yield_what_their_purpose_asks() {
        use Purpose::*;
        check("1", MatchCondition, expect!["must evaluate to bool but got int"]);
        check("object", Validation, expect!["must evaluate to bool but got dyn"]);
        check(
            "[duration('1s')]",
            Message,
            expect!["must evaluate to string but got list(google.protobuf.Duration)"],
        );
        check("null", AuditAnnotation, expect!["null_type"]);
        check(
            "{'a': 1}",
            AuditAnnotation,
            expect!["must evaluate to one of [string null_type] but got map(string, int)"],
        );
        check("Object{spec: Object.spec{a: 1}}", ApplyConfiguration, expect!["Object"]);
        check(
            "object",
            ApplyConfiguration,
            expect!["must evaluate to Object but got dyn"],
        );
        check(
            "[JSONPatch{op: 'add', path: '/a', value: 1}]",
            JsonPatch,
            expect!["list(JSONPatch)"],
        );
        check("1", JsonPatch, expect!["must evaluate to list(JSONPatch) but got int"]);
    }

    #[test]
    fn a_variable_is_named_by_those_after_it() {
        let mut compiler = Compiler::with_variables(Params::Declared);
        compiler.compile_variable("a", "params.x").expect("a variable");
        compiler.compile_variable("b", "[variables.a > 1]").expect("a variable");
        compiler.compile_variable("c", "nothing").expect_err("no variable");
        compiler.compile_variable("d", "quantity('1')").expect("a variable");
        let of = |source| match compiler.compile(source, Purpose::Validation) {
            Ok(_) => "bool".to_owned(),
            Err(refusal) => refusal.to_string(),
        };
        assert_eq!(
            of("variables.b[0] && variables.c && variables.d.isLessThan(quantity('2'))"),
            "bool"
        );
        assert_eq!(of("variables.b"), "must evaluate to bool but got list(bool)");
        assert!(
            of("variables.e").contains("undefined field 'e'"),
            "{}",
            of("variables.e")
        );
    }
}
