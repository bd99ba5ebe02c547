//! From a message's bytes to the JSON that says the same. What protobuf always writes and JSON leaves out when it is
//! empty is left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use super::messages::{self, Field, Kind, Message, Type};
use super::wire::{BYTES, Reader, Tag, low_half};
use crate::kinds::time;

/// Objects and lists within each other, as for JSON: what is stored is read again as JSON.
const DEEPEST: usize = 127;
/// What as many bytes could hold in JSON: two bytes of protobuf are a value, which takes some hundred in memory.
const MOST_VALUES: usize = crate::api::body::MOST / 3;

/// The message as a JSON object.
pub(super) fn object(message: &Message, bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let mut decoder = Decoder {
        values_left: MOST_VALUES,
    };
    let mut object = Map::new();
    decoder.message(message, bytes, &mut object, 1)?;
    Ok(object)
}

#[derive(Debug)]
struct Decoder {
    values_left: usize,
}

impl Decoder {
    /// Adds the message's fields. One that comes again replaces, or is merged into, what came before.
    fn message(
        &mut self,
        message: &Message,
        bytes: &[u8],
        into: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), String> {
        if depth > DEEPEST {
            return Err("exceeded max depth".to_owned());
        }
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag(message.name)? {
            match message.field(tag.field) {
                Some(field) => self.field(field, tag, &mut reader, into, depth)?,
                None => reader.skip(tag)?,
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        field: &Field,
        tag: Tag,
        reader: &mut Reader,
        into: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), String> {
        self.count()?;
        match field.kind {
            Kind::Inline(index) => {
                let bytes = reader.bytes(tag, field)?;
                self.message(at(index)?, bytes, into, depth)
            }
            Kind::One(Type::Message(index)) => {
                let bytes = reader.bytes(tag, field)?;
                let entry = entry(into, field.name, Value::Object);
                if let Some(object) = entry.as_object_mut() {
                    self.message(at(index)?, bytes, object, depth + 1)?;
                    if object.is_empty() && !field.is_pointer {
                        into.remove(field.name);
                    }
                }
                Ok(())
            }
            Kind::One(kind) => {
                let value = self.value(kind, field, tag, reader, depth)?;
                if is_empty(kind, &value) && !field.is_pointer {
                    into.remove(field.name);
                } else {
                    into.insert(field.name.to_owned(), value);
                }
                Ok(())
            }
            Kind::List(kind) => {
                let Some(items) = entry(into, field.name, Value::Array).as_array_mut() else {
                    return Ok(());
                };
                self.items(kind, field, tag, reader, items, depth + 1)
            }
            Kind::Map(kind) => {
                let bytes = reader.bytes(tag, field)?;
                let (key, value) = self.map_entry(field, bytes, |decoder, tag, reader| {
                    decoder.value(kind, field, tag, reader, depth + 1)
                })?;
                let value = value.unwrap_or_else(|| absent(kind));
                if let Some(map) = entry(into, field.name, Value::Object).as_object_mut() {
                    map.insert(key, value);
                }
                Ok(())
            }
            Kind::MapOfLists(kind) => {
                let bytes = reader.bytes(tag, field)?;
                let (key, items) = self.map_entry(field, bytes, |decoder, tag, reader| {
                    let mut list = Reader::new(reader.bytes(tag, field)?);
                    let mut items = Vec::new();
                    while let Some(tag) = list.tag("ExtraValue")? {
                        match tag.field {
                            1 => decoder.items(kind, field, tag, &mut list, &mut items, depth + 2)?,
                            _ => list.skip(tag)?,
                        }
                    }
                    Ok(Value::Array(items))
                })?;
                if let Some(map) = entry(into, field.name, Value::Object).as_object_mut() {
                    map.insert(key, items.unwrap_or(Value::Null));
                }
                Ok(())
            }
        }
    }

    /// One more item of a list; of numbers all that are packed into one field.
    fn items(
        &mut self,
        kind: Type,
        field: &Field,
        tag: Tag,
        reader: &mut Reader,
        items: &mut Vec<Value>,
        depth: usize,
    ) -> Result<(), String> {
        if tag.wire == BYTES && matches!(kind, Type::Int32 | Type::Int64 | Type::Bool) {
            let mut packed = Reader::new(reader.bytes(tag, field)?);
            while !packed.is_empty() {
                self.count()?;
                items.push(number(kind, packed.varint()?));
            }
            return Ok(());
        }
        items.push(self.value(kind, field, tag, reader, depth)?);
        Ok(())
    }

    /// What an entry of a map says: its first field is the key, its second the value.
    fn map_entry<'a>(
        &mut self,
        field: &Field,
        bytes: &'a [u8],
        mut value: impl FnMut(&mut Self, Tag, &mut Reader<'a>) -> Result<Value, String>,
    ) -> Result<(String, Option<Value>), String> {
        let (mut key, mut found) = (String::new(), None);
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag(field.name)? {
            match tag.field {
                1 => key = text(reader.bytes(tag, field)?),
                2 => found = Some(value(self, tag, &mut reader)?),
                _ => reader.skip(tag)?,
            }
        }
        Ok((key, found))
    }

    fn value(
        &mut self,
        kind: Type,
        field: &Field,
        tag: Tag,
        reader: &mut Reader,
        depth: usize,
    ) -> Result<Value, String> {
        let mut bytes = || reader.bytes(tag, field);
        match kind {
            Type::Text => Ok(text(bytes()?).into()),
            Type::Bytes => Ok(STANDARD.encode(bytes()?).into()),
            Type::Time => moment(bytes()?, false),
            Type::MicroTime => moment(bytes()?, true),
            Type::Quantity => quantity(bytes()?),
            Type::IntOrString => int_or_string(bytes()?),
            Type::Json => json(bytes()?, depth),
            Type::Fields => Ok(json(bytes()?, depth).unwrap_or_default()),
            Type::SchemaOrList | Type::SchemaOrBool | Type::SchemaOrStrings => self.schema_or(kind, bytes()?, depth),
            Type::Message(index) => {
                let mut object = Map::new();
                self.message(at(index)?, bytes()?, &mut object, depth + 1)?;
                Ok(Value::Object(object))
            }
            Type::Bool | Type::Int32 | Type::Int64 => Ok(number(kind, reader.number(tag, field)?)),
            Type::Double => double(reader.double(tag, field)?),
        }
    }

    /// A schema, or what may stand in its place. The schema has the number 1, but 2 beside a truth.
    fn schema_or(&mut self, kind: Type, bytes: &[u8], depth: usize) -> Result<Value, String> {
        let schema = messages::all().schema().ok_or("schemas are not known")?;
        let mut found: Option<Map<String, Value>> = None;
        let mut others = Vec::new();
        let mut is_allowed = false;
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag("JSONSchemaProps")? {
            match (kind, tag.field) {
                (Type::SchemaOrBool, 1) => is_allowed = reader.number(tag, &"Allows")? != 0,
                (Type::SchemaOrBool, 2) | (_, 1) => {
                    let bytes = reader.bytes(tag, &"Schema")?;
                    self.message(schema, bytes, found.get_or_insert_default(), depth + 1)?;
                }
                (Type::SchemaOrList, 2) => {
                    self.count()?;
                    let mut item = Map::new();
                    self.message(schema, reader.bytes(tag, &"JSONSchemas")?, &mut item, depth + 2)?;
                    others.push(Value::Object(item));
                }
                (Type::SchemaOrStrings, 2) => {
                    self.count()?;
                    others.push(text(reader.bytes(tag, &"Property")?).into());
                }
                _ => reader.skip(tag)?,
            }
        }
        Ok(match (others.is_empty(), found) {
            (false, _) => Value::Array(others),
            (true, Some(schema)) => Value::Object(schema),
            (true, None) if kind == Type::SchemaOrBool => Value::Bool(is_allowed),
            (true, None) => Value::Null,
        })
    }

    fn count(&mut self) -> Result<(), String> {
        self.values_left = self
            .values_left
            .checked_sub(1)
            .ok_or_else(|| format!("the message holds more than {MOST_VALUES} values"))?;
        Ok(())
    }
}

fn at(index: usize) -> Result<&'static Message, String> {
    messages::all()
        .at(index)
        .ok_or_else(|| "the message is not known".to_owned())
}

fn entry<'a, T: Default>(into: &'a mut Map<String, Value>, name: &str, empty: fn(T) -> Value) -> &'a mut Value {
    match into.entry(name) {
        Entry::Occupied(entry) => entry.into_mut(),
        Entry::Vacant(entry) => entry.insert(empty(T::default())),
    }
}

/// What JSON leaves out unless it was given on purpose.
fn is_empty(kind: Type, value: &Value) -> bool {
    match kind {
        Type::Text | Type::Bytes => value == "",
        Type::Bool => value == &Value::Bool(false),
        Type::Int32 | Type::Int64 | Type::Double => value.as_f64() == Some(0.0),
        _ => value.is_null(),
    }
}

/// What a map holds where an entry says only a key.
fn absent(kind: Type) -> Value {
    match kind {
        Type::Text | Type::Bytes => "".into(),
        Type::Quantity => "0".into(),
        Type::Message(_) => Value::Object(Map::new()),
        _ => Value::Null,
    }
}

/// Go does not look whether a text is one; in JSON it writes this sign where it is not.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn number(kind: Type, number: u64) -> Value {
    match kind {
        Type::Bool => (number != 0).into(),
        Type::Int32 => low_half(number).into(),
        _ => i64::from_le_bytes(number.to_le_bytes()).into(),
    }
}

/// A number that is whole is written without a point.
fn double(number: f64) -> Result<Value, String> {
    let whole = format!("{number:.0}");
    if let Ok(whole) = whole.parse::<i64>()
        && number.fract() == 0.0
    {
        return Ok(whole.into());
    }
    Number::from_f64(number)
        .map(Value::Number)
        .ok_or_else(|| format!("json: unsupported value: {number}"))
}

/// Seconds and parts of them since 1970; nothing at all is no time.
fn moment(bytes: &[u8], with_micros: bool) -> Result<Value, String> {
    /// What Go takes for no time: the first second of the year 1.
    const NONE: i64 = -62_135_596_800;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag("Timestamp")? {
        match tag.field {
            1 => seconds = i64::from_le_bytes(reader.number(tag, &"Seconds")?.to_le_bytes()),
            2 => nanos = low_half(reader.number(tag, &"Nanos")?),
            _ => reader.skip(tag)?,
        }
    }
    // Parts of a second are not told by `Time`.
    let micros = if with_micros { i64::from(nanos / 1_000) } else { 0 };
    if seconds == NONE && micros == 0 {
        return Ok(Value::Null);
    }
    let moment = Timestamp::from_second(seconds)
        .and_then(|moment| moment.checked_add(SignedDuration::from_micros(micros)))
        .ok()
        .filter(|moment| moment.as_second() >= NONE)
        .ok_or("Time.MarshalJSON: year outside of range [0,9999]")?;
    Ok(match with_micros {
        true => time::format_micros(moment),
        false => time::format_seconds(moment),
    }
    .into())
}

fn quantity(bytes: &[u8]) -> Result<Value, String> {
    let mut amount = "0".to_owned();
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag("Quantity")? {
        match tag.field {
            1 => amount = text(reader.bytes(tag, &"String_")?),
            _ => reader.skip(tag)?,
        }
    }
    Ok(amount.into())
}

fn int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let (mut is_text, mut number, mut words) = (false, 0, String::new());
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag("IntOrString")? {
        match tag.field {
            1 => is_text = reader.number(tag, &"Type")? == 1,
            2 => number = low_half(reader.number(tag, &"IntVal")?),
            3 => words = text(reader.bytes(tag, &"StrVal")?),
            _ => reader.skip(tag)?,
        }
    }
    Ok(if is_text { words.into() } else { number.into() })
}

fn json(bytes: &[u8], depth: usize) -> Result<Value, String> {
    let mut raw: &[u8] = &[];
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag("RawExtension")? {
        match tag.field {
            1 => raw = reader.bytes(tag, &"Raw")?,
            _ => reader.skip(tag)?,
        }
    }
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    let value = serde_json::from_slice(raw)
        .map_err(|why| format!("json parse error: {}", crate::api::body::json_error(raw, &why)))?;
    if depth + deepness(&value) > DEEPEST {
        return Err("exceeded max depth".to_owned());
    }
    Ok(value)
}

/// How many objects and lists are within each other.
fn deepness(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(deepness).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(deepness).max().unwrap_or(0),
        _ => 0,
    }
}
