//! Stand-ins for parts of the machinery that are not there yet.

pub mod managed {
    //! Managed fields.
    use serde_json::Value;
    pub struct TypeSchema;
    impl TypeSchema {
        pub fn new(_ty: mica_machinery::facts::TypeId) -> Self {
            Self
        }
    }
    pub enum Operation {
        Update,
    }
    pub struct ManagerInfo<'a> {
        pub manager: &'a str,
        pub operation: Operation,
        pub api_version: &'a str,
        pub subresource: &'a str,
        pub time: jiff::Timestamp,
    }
    pub fn create(_schema: &TypeSchema, _new: &mut Value, _info: &ManagerInfo<'_>, _reset: &[&[&str]]) {}
    pub fn update(_schema: &TypeSchema, _live: &Value, _new: &mut Value, _info: &ManagerInfo<'_>, _reset: &[&[&str]]) {}
}

pub mod yaml {
    //! YAML.
    pub struct Converted {
        pub json: Vec<u8>,
        pub strict: Vec<String>,
    }
    pub fn to_json(_yaml: &[u8]) -> Result<Converted, String> {
        Err("no YAML yet".to_owned())
    }
    pub fn from_json(json: &[u8]) -> Vec<u8> {
        json.to_vec()
    }
}
