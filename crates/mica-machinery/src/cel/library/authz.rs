//! The authorizer library: expressions build a check, and whoever serves the request answers it.

use std::sync::Arc;

use super::{EvalError, Host, Implementation, Outcome};
use crate::cel::value::Val;

/// Answers what an expression asks about permissions.
pub trait Authorizer {
    fn authorize(&self, check: &Check) -> Decision;
}

/// Who is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The user who made the request.
    Requester,
    ServiceAccount {
        namespace: String,
        name: String,
    },
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    pub subject: Subject,
    pub verb: String,
    pub target: Target,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Path(String),
    Resource(Resource),
}

/// A resource check under construction; empty strings are what was not said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resource {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub field_selector: String,
    pub label_selector: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
    pub error: Option<String>,
}

/// A value of this library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Authorizer(Subject),
    PathCheck(Subject, String),
    GroupCheck(Subject, String),
    ResourceCheck(Subject, Resource),
    Decision(Decision),
}

impl Value {
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Self::PathCheck(..) => "kubernetes.authorization.PathCheck",
            Self::GroupCheck(..) => "kubernetes.authorization.GroupCheck",
            Self::ResourceCheck(..) => "kubernetes.authorization.ResourceCheck",
            Self::Decision(_) => "kubernetes.authorization.Decision",
        }
    }
}

impl Val<'_> {
    /// The variable `authorizer`.
    pub fn authorizer() -> Self {
        value(Value::Authorizer(Subject::Requester))
    }

    /// The variable `authorizer.requestResource`.
    pub fn resource_authorizer(resource: Resource) -> Self {
        value(Value::ResourceCheck(Subject::Requester, resource))
    }
}

fn value<'a>(value: Value) -> Val<'a> {
    Val::Authz(Arc::new(value))
}

pub fn find(name: &str) -> Option<Implementation> {
    Some(match name {
        "path" => |_, args| {
            let (Value::Authorizer(subject), path) = receiver(args)? else {
                return Err(EvalError::no_overload());
            };
            if path.trim().is_empty() {
                return Err(EvalError::failed("path must not be empty"));
            }
            Ok(value(Value::PathCheck(subject.clone(), path.to_owned())))
        },
        "group" => |_, args| {
            let (Value::Authorizer(subject), group) = receiver(args)? else {
                return Err(EvalError::no_overload());
            };
            Ok(value(Value::GroupCheck(subject.clone(), group.to_owned())))
        },
        "serviceAccount" => service_account,
        "resource" => |_, args| {
            let (Value::GroupCheck(subject, group), resource) = receiver(args)? else {
                return Err(EvalError::no_overload());
            };
            if resource.trim().is_empty() {
                return Err(EvalError::failed("resource must not be empty"));
            }
            let resource = Resource {
                group: group.clone(),
                resource: resource.to_owned(),
                ..Resource::default()
            };
            Ok(value(Value::ResourceCheck(subject.clone(), resource)))
        },
        "subresource" => |_, args| narrow(args, |resource, text| resource.subresource = text),
        "namespace" => |_, args| narrow(args, |resource, text| resource.namespace = text),
        "name" => |_, args| narrow(args, |resource, text| resource.name = text),
        "fieldSelector" => |_, args| narrow(args, |resource, text| resource.field_selector = text),
        "labelSelector" => |_, args| narrow(args, |resource, text| resource.label_selector = text),
        "check" => check,
        "allowed" => |_, args| decision(args, |decision| Val::Bool(decision.allowed)),
        "reason" => |_, args| decision(args, |decision| Val::string(decision.reason.as_str())),
        "errored" => |_, args| decision(args, |decision| Val::Bool(decision.error.is_some())),
        "error" => |_, args| {
            decision(args, |decision| {
                Val::string(decision.error.as_deref().unwrap_or_default())
            })
        },
        _ => return None,
    })
}

fn receiver<'v>(args: &'v [Val<'_>]) -> Result<(&'v Value, &'v str), EvalError> {
    match args {
        [Val::Authz(value), Val::String(text)] => Ok((value, text)),
        _ => Err(EvalError::no_overload()),
    }
}

fn narrow<'a>(args: &[Val<'a>], set: fn(&mut Resource, String)) -> Outcome<'a> {
    let (Value::ResourceCheck(subject, resource), text) = receiver(args)? else {
        return Err(EvalError::no_overload());
    };
    let mut resource = resource.clone();
    set(&mut resource, text.to_owned());
    Ok(value(Value::ResourceCheck(subject.clone(), resource)))
}

fn service_account<'a>(_: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let [Val::Authz(receiver), Val::String(namespace), Val::String(name)] = args else {
        return Err(EvalError::no_overload());
    };
    let Value::Authorizer(_) = &**receiver else {
        return Err(EvalError::no_overload());
    };
    if !crate::names::dns1123_subdomain(name).is_empty() {
        return Err(EvalError::failed("Invalid service account name"));
    }
    if !crate::names::dns1123_label(namespace).is_empty() {
        return Err(EvalError::failed("Invalid service account namespace"));
    }
    let subject = Subject::ServiceAccount {
        namespace: namespace.to_string(),
        name: name.to_string(),
    };
    Ok(value(Value::Authorizer(subject)))
}

fn check<'a>(host: &mut Host<'_>, args: &[Val<'a>]) -> Outcome<'a> {
    let (receiver, verb) = receiver(args)?;
    let (subject, target) = match receiver {
        Value::PathCheck(subject, path) => (subject, Target::Path(path.clone())),
        Value::ResourceCheck(subject, resource) => (subject, Target::Resource(resource.clone())),
        _ => return Err(EvalError::no_overload()),
    };
    let check = Check {
        subject: subject.clone(),
        verb: verb.to_owned(),
        target,
    };
    let decision = host
        .authorizer
        .map(|authorizer| authorizer.authorize(&check))
        .unwrap_or_default();
    Ok(value(Value::Decision(decision)))
}

fn decision<'a>(args: &[Val<'a>], of: fn(&Decision) -> Val<'a>) -> Outcome<'a> {
    match args {
        [Val::Authz(value)] => match &**value {
            Value::Decision(decision) => Ok(of(decision)),
            _ => Err(EvalError::no_overload()),
        },
        _ => Err(EvalError::no_overload()),
    }
}
