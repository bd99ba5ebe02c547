//! The order in which the reference lists the ports of an endpoint: by the FNV-1a hash, 128 bits, of each port as Go's
//! `spew` writes it. Nobody reads a meaning into it, but clients see it.

use k8s_openapi::api::core::v1::EndpointPort as CorePort;
use k8s_openapi::api::discovery::v1::EndpointPort;

const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

fn hash(text: &str) -> u128 {
    text.bytes()
        .fold(OFFSET, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

fn pointer(kind: &str, value: Option<&str>) -> String {
    format!("(*{kind}){}", value.unwrap_or("<nil>"))
}

/// Sorts by this: a port of an Endpoints object.
pub(super) fn of_core(port: &CorePort) -> u128 {
    hash(&format!(
        "(v1.EndpointPort){{Name:(string){} Port:(int32){} Protocol:(v1.Protocol){} AppProtocol:{}}}",
        port.name.as_deref().unwrap_or_default(),
        port.port,
        port.protocol.as_deref().unwrap_or_default(),
        pointer("string", port.app_protocol.as_deref()),
    ))
}

/// Sorts by this: a port of an EndpointSlice.
pub(super) fn of_slice(port: &EndpointPort) -> u128 {
    let number = port.port.map(|port| port.to_string());
    hash(&format!(
        "(v1.EndpointPort){{Name:{} Protocol:{} Port:{} AppProtocol:{}}}",
        pointer("string", port.name.as_deref()),
        pointer("v1.Protocol", port.protocol.as_deref()),
        pointer("int32", number.as_deref()),
        pointer("string", port.app_protocol.as_deref()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_the_published_test_vectors() {
        assert_eq!(hash(""), OFFSET);
        assert_eq!(hash("a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(hash("foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }
}
