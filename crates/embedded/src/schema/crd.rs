use crate::fault::FieldError;
use serde_json::Value;
pub fn row_of(_: &Value) -> Result<crate::registry::row::Row, Vec<FieldError>> {
    Err(Vec::new())
}
