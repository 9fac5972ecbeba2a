//! Environments: which names an expression may use, and the way from its text to a program.

use std::collections::HashMap;
use std::sync::Arc;

use super::check::{Checked, check};
use super::decl::{DeclType, Place};
use super::functions::{self, Function};
use super::schema::Schema;
use super::source::CompileErrors;
use super::types::{OPTIONAL, Type};
use super::{cost, escape, eval, message, parser, plan};

/// Brackets and conditionals that any stack can hold the parsing of, however they nest.
const SHALLOW: usize = 40;

/// A stack for the parsing of more.
const DEEP_STACK: usize = 16 << 20;

/// Names and types that expressions are checked against.
#[derive(Debug, Clone, Default)]
pub struct Env {
    variables: HashMap<String, Type>,
    declared: HashMap<String, Arc<DeclType>>,
    objects: HashMap<String, Arc<DeclType>>,
    mutation: bool,
}

/// Why an expression is no program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    #[error(transparent)]
    Issues(#[from] CompileErrors),
    /// The expression is sound, but a constant in it cannot be used: `int('x')`.
    #[error("{why}")]
    Instantiation { why: String, result_type: Type },
}

/// A checked expression, ready to run. It holds no data and can be shared.
///
/// Of what it was checked against it keeps nothing: programs stay for as long as their definition is served.
#[derive(Debug)]
pub struct Program {
    pub(super) root: plan::Node,
    result_type: Type,
    /// The declared names that it mentions.
    mentioned: Box<[String]>,
    cost: cost::Estimate,
}

impl Env {
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a variable of a type without fields.
    pub fn with_variable(mut self, name: &str, of: Type) -> Self {
        self.variables.insert(name.to_owned(), of);
        self
    }

    /// Declares a variable by its declared type.
    pub fn with_declared(mut self, name: &str, of: Arc<DeclType>) -> Self {
        self.add_objects(&of);
        self.variables.insert(name.to_owned(), of.cel.clone());
        self.declared.insert(name.to_owned(), of);
        self
    }

    /// Declares a variable that may be absent.
    pub fn with_optional(mut self, name: &str, of: Arc<DeclType>) -> Self {
        self.add_objects(&of);
        self.variables.insert(name.to_owned(), Type::optional(of.cel.clone()));
        self.declared.insert(name.to_owned(), of);
        self
    }

    /// Declares `self` and `oldSelf` by a schema, as validation rules of custom resources see them. `None` if the schema
    /// has no declared type.
    pub fn for_schema(schema: &Schema, place: Place, old: OldSelf) -> Option<Self> {
        let declared = Arc::new(DeclType::from_schema(schema, place, "selfType")?);
        let env = Self::new().with_declared("self", declared.clone());
        Some(match old {
            OldSelf::Present => env.with_declared("oldSelf", declared),
            OldSelf::Optional => env.with_optional("oldSelf", declared),
        })
    }

    /// Lets expressions make `Object{…}`, `Object.spec{…}` and `JSONPatch{…}`, and use the jsonpatch library.
    pub fn with_mutation_types(mut self) -> Self {
        self.mutation = true;
        self
    }

    /// Compiles an expression.
    pub fn compile(&self, source: &str) -> Result<Program, CompileError> {
        if nesting(source) <= SHALLOW {
            return self.compile_here(source);
        }
        // The depth of what the parser accepts is bounded, but not by what every thread's stack can hold.
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().stack_size(DEEP_STACK);
            let failed = || CompileError::Instantiation {
                why: "out of memory".to_owned(),
                result_type: Type::Dyn,
            };
            let thread = builder
                .spawn_scoped(scope, || self.compile_here(source))
                .map_err(|_| failed())?;
            thread.join().map_err(|_| failed())?
        })
    }

    fn compile_here(&self, source: &str) -> Result<Program, CompileError> {
        let parsed = parser::parse(source)?;
        let checked = check(parsed, self).map_err(|issues| CompileErrors::new(source, issues))?;
        let result_type = checked.type_of(checked.root.id).clone();
        let root = match plan::plan(&checked, self) {
            Ok(root) => root,
            Err(why) => return Err(CompileError::Instantiation { why, result_type }),
        };
        Ok(Program {
            root,
            result_type,
            mentioned: mentioned(&checked),
            cost: cost::estimate(&checked, &self.declared),
        })
    }

    fn add_objects(&mut self, of: &Arc<DeclType>) {
        let objects = &mut self.objects;
        of.objects(&mut |name, object| {
            objects.insert(name.to_owned(), Arc::new(object.clone()));
        });
    }

    pub(super) fn ident_type(&self, name: &str) -> Option<Type> {
        if let Some(of) = self.variables.get(name) {
            return Some(of.clone());
        }
        if name == message::NULL_VALUE {
            return Some(Type::Int);
        }
        let named = self.type_named(name).or_else(|| message::type_of(name)).or(match name {
            // What declarations call them: the checker takes these names where there are any, and no program can be made of it.
            "duration" if !self.declared.is_empty() => Some(Type::Duration),
            "timestamp" if !self.declared.is_empty() => Some(Type::Timestamp),
            _ => None,
        });
        named.map(Type::type_of)
    }

    /// The type that a name denotes.
    pub(super) fn type_named(&self, name: &str) -> Option<Type> {
        Some(match name {
            "bool" => Type::Bool,
            "bytes" => Type::Bytes,
            "double" => Type::Double,
            "int" => Type::Int,
            "string" => Type::String,
            "uint" => Type::Uint,
            "null_type" => Type::Null,
            "google.protobuf.Duration" => Type::Duration,
            "google.protobuf.Timestamp" => Type::Timestamp,
            "list" => Type::list(Type::Param("A".into())),
            "map" => Type::map(Type::Param("A".into()), Type::Param("B".into())),
            "type" => Type::Type(None),
            OPTIONAL => Type::Opaque(OPTIONAL.into(), Arc::new([])),
            "net.IP" | "net.CIDR" => Type::parse(name)?,
            message::EMPTY => Type::object(name),
            _ if self.has_fields(name) => Type::object(name),
            _ => return None,
        })
    }

    pub(super) fn is_mutation_type(&self, name: &str) -> bool {
        self.mutation && (name == "JSONPatch" || name == "Object" || name.starts_with("Object."))
    }

    /// Whether anything is known of the fields of a type.
    pub(super) fn has_fields(&self, object: &str) -> bool {
        self.objects.contains_key(object) || self.is_mutation_type(object) || object == message::EMPTY
    }

    /// Whether upstream's provider of types knows a name, and so could know fields of it.
    pub(super) fn is_resolved(&self, name: &str) -> bool {
        // Scalars, lists and maps are known where anything is declared.
        let plain = |of: Type| !self.declared.is_empty() && !matches!(of, Type::Type(_) | Type::Opaque(..));
        message::type_of(name).is_some() || self.has_fields(name) || self.type_named(name).is_some_and(plain)
    }

    pub(super) fn field_type(&self, object: &str, field: &str) -> Option<Type> {
        if self.is_mutation_type(object) {
            return match (object, field) {
                ("JSONPatch", "op" | "path" | "from") => Some(Type::String),
                ("JSONPatch", "value") => Some(Type::Dyn),
                ("JSONPatch", _) => None,
                _ => Some(Type::Dyn),
            };
        }
        if let Some(found) = message::field_type(object, field) {
            return Some(found);
        }
        let fields = self.objects.get(object)?.fields.as_ref()?;
        let found = fields.get(field).or_else(|| {
            escape::is_reserved(field)
                .then(|| fields.get(&format!("__{field}__")))
                .flatten()
        })?;
        Some(found.cel.clone())
    }

    pub(super) fn function(&self, name: &str) -> Option<&'static Function> {
        functions::find(name).filter(|_| self.mutation || name != "jsonpatch.escapeKey")
    }
}

/// What `oldSelf` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldSelf {
    Present,
    /// `optionalOldSelf`: absent when the value is new.
    Optional,
}

impl Program {
    /// The type of the result.
    pub fn result_type(&self) -> &Type {
        &self.result_type
    }

    /// Whether the expression mentions the variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.mentioned.iter().any(|name| name == variable)
    }

    /// What one evaluation costs at least and at most, by the declared sizes.
    pub fn estimate_cost(&self) -> cost::Estimate {
        self.cost
    }

    /// Evaluates, spending at most `limit`; says what was spent also when it failed.
    pub fn eval<'a>(&self, activation: &dyn eval::Activation<'a>, limit: u64) -> eval::Outcome<'a> {
        eval::run(self, activation, limit)
    }
}

/// The declared names in a tree, each once.
fn mentioned(checked: &Checked) -> Box<[String]> {
    let mut names = Vec::new();
    checked.root.walk(&mut |expr| {
        if let super::ast::Kind::Ident(name) = &expr.kind
            && checked.is_reference(expr.id)
            && !names.contains(name)
        {
            names.push(name.clone());
        }
    });
    names.into()
}

/// How deep brackets and conditionals can nest at most: how many there are.
fn nesting(source: &str) -> usize {
    let opens = |b: &u8| matches!(b, b'(' | b'[' | b'{' | b'?');
    source.bytes().filter(opens).count()
}
