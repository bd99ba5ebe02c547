//! Which port a probe or a hook means.

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A port by number, by a container port's name, or by a number written as text.
///
/// # Errors
/// The reference's words on a name that no port has, and on a number that is no port.
pub(in super::super) fn number(port: &IntOrString, container: &Container) -> Result<u16, String> {
    match port {
        IntOrString::Int(number) => checked(*number),
        IntOrString::String(name) => {
            let named = container
                .ports
                .iter()
                .flatten()
                .find(|port| port.name.as_deref() == Some(name.as_str()));
            match named {
                Some(port) => checked(port.container_port),
                None => name
                    .parse()
                    .map_err(|_| format!("strconv.Atoi: parsing {name:?}: invalid syntax"))
                    .and_then(checked),
            }
        }
    }
}

pub(super) fn checked(number: i32) -> Result<u16, String> {
    u16::try_from(number)
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("invalid port number: {number}"))
}
