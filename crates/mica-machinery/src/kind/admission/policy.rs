//! ValidatingAdmissionPolicies and MutatingAdmissionPolicies.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::expression::{compile, error, validate_match_conditions, validate_variables};
use super::rule::{
    FAILURE_POLICIES, REINVOCATION_POLICIES, default_match_resources, validate_match_resources,
    validate_mutating_operations,
};
use super::static_suffix_warning;
use crate::cel::admission::{Compiler, Params, Purpose};
use crate::field::{Error, ErrorList, Path};
use crate::kind::check::{invalid_as, invalid_each, is_set, keep_metadata, one_of, present, same, set_default_pointer};
use crate::kind::column::{AGE, NAME, age, integer, text};
use crate::kind::{Column, MetadataCheck, NameUse, Strategy, WriteContext, condition, internal};
use crate::{names, object};

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const PATCH_TYPES: [&str; 2] = ["ApplyConfiguration", "JSONPatch"];
const MAX_AUDIT_ANNOTATIONS: usize = 20;
const MAX_ANNOTATION_EXPRESSION_BYTES: usize = 5 * 1024;

/// Which of the two policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Mutating,
    Validating,
}

impl Strategy for Policy {
    fn default(&self, object: &mut Value) {
        set_default_pointer(object, &["spec", "failurePolicy"], "Fail");
        default_match_resources(object, &["spec", "matchConstraints"]);
    }

    fn prepare_create(&self, _ctx: &WriteContext<'_>, object: &mut Value) {
        if *self == Self::Validating {
            object::set(object, &["status"], json!({}));
        }
    }

    fn prepare_update(&self, ctx: &WriteContext<'_>, new: &mut Value, old: &Value) {
        if *self == Self::Mutating {
            return;
        }
        if ctx.subresource == "status" {
            object::copy(old, new, &["spec"]);
            keep_metadata(new, old);
        } else {
            object::copy(old, new, &["status"]);
        }
    }

    fn validate(&self, _ctx: &WriteContext<'_>, object: &Value) -> ErrorList {
        self.validate_spec(object, None)
    }

    fn validate_update(&self, ctx: &WriteContext<'_>, new: &Value, old: &Value) -> ErrorList {
        if ctx.subresource == "status" {
            validate_status(new)
        } else {
            self.validate_spec(new, Some(old))
        }
    }

    fn warnings(&self, _ctx: &WriteContext<'_>, new: &Value, _old: Option<&Value>) -> Vec<String> {
        static_suffix_warning(new)
    }

    fn metadata_check(&self, ctx: &WriteContext<'_>) -> MetadataCheck {
        MetadataCheck::whole_object(ctx)
    }

    fn name_errors(&self, name: &str, name_use: NameUse) -> Vec<String> {
        names::name_is_dns_subdomain(name, name_use)
    }

    fn columns(&self) -> &'static [Column] {
        const PARAM_KIND: Column = text(
            "ParamKind",
            "ParamKind specifies the kind of resources used to parameterize this policy",
        );
        const MUTATIONS: &str = "Mutation indicates the number of mutations rules defined in this configuration";
        const VALIDATIONS: &str = "Validations indicates the number of validation rules defined in this configuration";
        const MUTATING: &[Column] = &[NAME, integer("Mutations", MUTATIONS), PARAM_KIND, AGE];
        const VALIDATING: &[Column] = &[NAME, integer("Validations", VALIDATIONS), PARAM_KIND, AGE];
        match self {
            Self::Mutating => MUTATING,
            Self::Validating => VALIDATING,
        }
    }

    fn cells(&self, object: &Value, now: jiff::Timestamp) -> Vec<Value> {
        let rules = match self {
            Self::Mutating => "mutations",
            Self::Validating => "validations",
        };
        let param_kind = present(object, &["spec", "paramKind"]).map_or("<unset>".to_owned(), |kind| {
            format!(
                "{}/{}",
                object::string(kind, &["apiVersion"]),
                object::string(kind, &["kind"])
            )
        });
        let count = object::list(object, &["spec", rules]).len();
        vec![
            object::name(object).into(),
            json!(count),
            param_kind.into(),
            age(object, now),
        ]
    }

    fn unconditional_update(&self) -> bool {
        false
    }

    fn generation_fields(&self) -> &'static [&'static str] {
        &["spec"]
    }

    fn reset_fields(&self, subresource: &str) -> &'static [&'static [&'static str]] {
        match (self, subresource) {
            (Self::Mutating, _) => &[],
            (Self::Validating, "status") => &[&["spec"], &["metadata"]],
            (Self::Validating, _) => &[&["status"]],
        }
    }
}

impl Policy {
    fn validate_spec(self, object: &Value, old: Option<&Value>) -> ErrorList {
        let mut errors = ErrorList::new();
        let (path, spec) = (Path::new("spec"), object.get("spec").unwrap_or(&Value::Null));
        required_one_of(spec, "failurePolicy", &FAILURE_POLICIES, &path, &mut errors);
        let mut params = Params::Absent;
        if let Some(kind) = present(spec, &["paramKind"]) {
            params = Params::Declared;
            validate_param_kind(kind, &path.child("paramKind"), &mut errors);
        }
        self.validate_constraints(spec, &path.child("matchConstraints"), &mut errors);
        let unchanged = |field| old.is_some_and(|old| same(spec.get(field), object::get(old, &["spec", field])));
        if !(unchanged("paramKind") && unchanged("matchConditions")) {
            let conditions = object::list(spec, &["matchConditions"]);
            errors.extend(validate_match_conditions(
                conditions,
                params,
                &path.child("matchConditions"),
            ));
        }
        let variables = object::list(spec, &["variables"]);
        let mut compiler = match self {
            Self::Validating if variables.is_empty() => Compiler::new(params),
            Self::Validating | Self::Mutating => Compiler::with_variables(params),
        };
        errors.extend(validate_variables(variables, &mut compiler, &path.child("variables")));
        match self {
            Self::Validating => validate_validations(object, spec, &compiler, &path, &mut errors),
            Self::Mutating => validate_mutations(spec, &compiler, &path, &mut errors),
        }
        errors
    }

    fn validate_constraints(self, spec: &Value, path: &Path, errors: &mut ErrorList) {
        let Some(constraints) = present(spec, &["matchConstraints"]) else {
            errors.push(Error::required(path, ""));
            return;
        };
        errors.extend(validate_match_resources(constraints, path));
        if object::list(constraints, &["resourceRules"]).is_empty() {
            errors.push(Error::required(&path.child("resourceRules"), ""));
        }
        if self == Self::Mutating {
            errors.extend(validate_mutating_operations(constraints, path));
        }
    }
}

fn required_one_of(spec: &Value, field: &str, values: &[&str], path: &Path, errors: &mut ErrorList) {
    match present(spec, &[field]).and_then(Value::as_str) {
        None => errors.push(Error::required(&path.child(field), "")),
        Some(value) if !values.contains(&value) => errors.push(Error::not_supported(&path.child(field), value, values)),
        Some(_) => {}
    }
}

fn validate_param_kind(kind: &Value, path: &Path, errors: &mut ErrorList) {
    let path_version = path.child("apiVersion");
    let api_version = object::string(kind, &["apiVersion"]);
    let joined = |texts: Vec<String>| texts.join(",");
    match api_version.matches('/').count() {
        _ if api_version.is_empty() => errors.push(Error::required(&path_version, "")),
        0 | 1 => {
            let (group, version) = match api_version {
                "/" => ("", ""),
                _ => api_version.split_once('/').unwrap_or(("", api_version)),
            };
            let texts = names::dns1123_subdomain(group);
            if !group.is_empty() && !texts.is_empty() {
                errors.push(Error::invalid(&path_version, group, joined(texts)));
            }
            let texts = names::dns1035_label(version);
            if version.is_empty() {
                errors.push(Error::invalid(&path_version, api_version, "version must be specified"));
            } else if !texts.is_empty() {
                errors.push(Error::invalid(&path_version, version, joined(texts)));
            }
        }
        _ => {
            let detail = format!("unexpected GroupVersion string: {api_version}");
            errors.push(Error::invalid(&path_version, api_version, detail));
        }
    }
    let name = object::string(kind, &["kind"]);
    let texts = names::dns1035_label(&name.to_lowercase());
    if name.is_empty() {
        errors.push(Error::required(&path.child("kind"), ""));
    } else if !texts.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", joined(texts));
        errors.push(Error::invalid(&path.child("kind"), name, detail));
    }
}

fn validate_validations(object: &Value, spec: &Value, compiler: &Compiler, path: &Path, errors: &mut ErrorList) {
    let (validations, annotations) = (
        object::list(spec, &["validations"]),
        object::list(spec, &["auditAnnotations"]),
    );
    if validations.is_empty() && annotations.is_empty() {
        for field in ["validations", "auditAnnotations"] {
            let detail = "validations or auditAnnotations must contain at least one item";
            errors.push(Error::required(&path.child(field), detail));
        }
        return;
    }
    for (i, validation) in validations.iter().enumerate() {
        validate_validation(validation, compiler, &path.child("validations").index(i), errors);
    }
    let path = path.child("auditAnnotations");
    if annotations.len() > MAX_AUDIT_ANNOTATIONS {
        let detail = format!("must not have more than {MAX_AUDIT_ANNOTATIONS} auditAnnotations");
        let name = "io.k8s.api.admissionregistration.v1.AuditAnnotation";
        let shown: Vec<String> = annotations.iter().map(|one| internal::shown(one, name)).collect();
        errors.push(invalid_as(&path, &format!("[{}]", shown.join(",")), &detail));
    }
    let mut seen = BTreeSet::new();
    for (i, annotation) in annotations.iter().enumerate() {
        let key = object::string(annotation, &["key"]);
        validate_annotation(object::name(object), annotation, compiler, &path.index(i), errors);
        if !seen.insert(key) {
            errors.push(Error::duplicate(&path.index(i).child("key"), key));
        }
    }
}

fn validate_validation(validation: &Value, compiler: &Compiler, path: &Path, errors: &mut ErrorList) {
    let of = |field| object::string(validation, &[field]);
    let expression = of("expression");
    if expression.trim().is_empty() {
        errors.push(Error::required(
            &path.child("expression"),
            "expression is not specified",
        ));
    } else {
        errors.extend(compile(
            compiler,
            expression,
            Purpose::Validation,
            &path.child("expression"),
        ));
    }
    let message_expression = of("messageExpression");
    if !message_expression.trim().is_empty() {
        errors.extend(compile(
            compiler,
            message_expression,
            Purpose::Message,
            &path.child("messageExpression"),
        ));
    } else if !message_expression.is_empty() {
        let detail = "must be non-empty if specified";
        errors.push(Error::invalid(
            &path.child("messageExpression"),
            message_expression,
            detail,
        ));
    }
    let message = of("message");
    if !message.is_empty() && message.trim().is_empty() {
        errors.push(Error::invalid(
            &path.child("message"),
            message,
            "must be non-empty if specified",
        ));
    } else if message.trim().contains(['\n', '\r']) {
        errors.push(Error::invalid(
            &path.child("message"),
            message,
            "must not contain line breaks",
        ));
    }
    if let Some(reason) = present(validation, &["reason"])
        .and_then(Value::as_str)
        .filter(|one| !REASONS.contains(one))
    {
        errors.push(Error::not_supported(&path.child("reason"), reason, &REASONS));
    }
}

fn validate_annotation(policy: &str, annotation: &Value, compiler: &Compiler, path: &Path, errors: &mut ErrorList) {
    let key = object::string(annotation, &["key"]);
    if policy.is_empty() {
        errors.push(Error::invalid(
            &path.child("key"),
            key,
            "requires metadata.name be non-empty",
        ));
    } else {
        let key = format!("{policy}/{key}");
        errors.extend(invalid_each(&path.child("key"), &key, names::qualified_name(&key)));
    }
    let path = path.child("valueExpression");
    let shown = object::string(annotation, &["valueExpression"]);
    let expression = shown.trim();
    if expression.is_empty() {
        errors.push(Error::required(&path, "valueExpression is not specified"));
    } else if expression.len() > MAX_ANNOTATION_EXPRESSION_BYTES {
        let detail = format!("must not exceed {MAX_ANNOTATION_EXPRESSION_BYTES} bytes in length");
        errors.push(Error::required(&path, detail));
    } else if let Err(refusal) = compiler.compile(expression, Purpose::AuditAnnotation) {
        errors.push(error(&refusal, shown, &path));
    }
}

fn validate_mutations(spec: &Value, compiler: &Compiler, path: &Path, errors: &mut ErrorList) {
    let mutations = object::list(spec, &["mutations"]);
    if mutations.is_empty() {
        errors.push(Error::required(
            &path.child("mutations"),
            "mutations must contain at least one item",
        ));
    }
    for (i, mutation) in mutations.iter().enumerate() {
        validate_mutation(mutation, compiler, &path.child("mutations").index(i), errors);
    }
    let reinvocation = object::string(spec, &["reinvocationPolicy"]);
    one_of(
        &path.child("reinvocationPolicy"),
        reinvocation,
        &REINVOCATION_POLICIES,
        errors,
    );
}

fn validate_mutation(mutation: &Value, compiler: &Compiler, path: &Path, errors: &mut ErrorList) {
    let r#type = object::string(mutation, &["patchType"]);
    let (field, other, purpose) = match r#type {
        "JSONPatch" => ("jsonPatch", "applyConfiguration", Purpose::JsonPatch),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", Purpose::ApplyConfiguration),
        _ => {
            one_of(&path.child("patchType"), r#type, &PATCH_TYPES, errors);
            return;
        }
    };
    match present(mutation, &[field]) {
        None => {
            let detail = format!("must be specified when patchType is {type}", r#type = r#type);
            errors.push(Error::required(&path.child(field), detail));
        }
        Some(patch) => {
            let path = path.child(field).child("expression");
            match object::string(patch, &["expression"]).trim() {
                "" => errors.push(Error::required(&path, "")),
                expression => errors.extend(compile(compiler, expression, purpose, &path)),
            }
        }
    }
    if is_set(mutation, &[other]) {
        let detail = format!("must not be specified when patchType is {type}", r#type = r#type);
        errors.push(Error::invalid(&path.child(other), format!("{{{other}}}"), detail));
    }
}

fn validate_status(object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("status");
    let warnings = object::list(object, &["status", "typeChecking", "expressionWarnings"]);
    for (i, warning) in warnings.iter().enumerate() {
        let path = path.child("typeChecking").child("expressionWarnings").index(i);
        if object::string(warning, &["warning"]).is_empty() {
            errors.push(Error::required(&path.child("warning"), ""));
        }
        if object::string(warning, &["fieldRef"]).trim().is_empty() {
            errors.push(Error::required(&path.child("fieldRef"), ""));
        }
    }
    let conditions = object::list(object, &["status", "conditions"]);
    errors.extend(condition::validate_all(conditions, &path.child("conditions")));
    errors
}
