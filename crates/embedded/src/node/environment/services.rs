//! Variables that tell a container where Services are: the API's always, the others of its namespace where the pod
//! wants service links.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, Service};

/// The API server's Service, which every pod is told of.
const API: (&str, &str) = ("default", "kubernetes");

pub(super) fn variables(pod: &Pod, services: &[Service]) -> BTreeMap<String, String> {
    let links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links) != Some(false);
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let place = |service: &Service| {
        let namespace = service.metadata.namespace.clone().unwrap_or_default();
        (namespace, service.metadata.name.clone().unwrap_or_default())
    };
    let is_api = |service: &&Service| place(service) == (API.0.to_owned(), API.1.to_owned());
    let own: Vec<&Service> = services
        .iter()
        .filter(|service| links && place(service).0 == namespace && has_address(service))
        .collect();
    // A Service of the pod's namespace takes the place of the API's if it has its name.
    let hidden = own.iter().any(|service| place(service).1 == API.1);
    let api = services.iter().filter(is_api).filter(|_| !hidden);
    let mut variables = BTreeMap::new();
    for service in api.chain(own.iter().copied()) {
        tell(service, &mut variables);
    }
    variables
}

fn tell(service: &Service, variables: &mut BTreeMap<String, String>) {
    let Some(spec) = &service.spec else { return };
    let address = spec.cluster_ip.as_deref().unwrap_or_default();
    let ports = spec.ports.as_deref().unwrap_or_default();
    let Some(first) = ports.first().filter(|_| has_address(service)) else {
        return;
    };
    let name = in_capitals(service.metadata.name.as_deref().unwrap_or_default());
    let mut set = |suffix: String, value: String| variables.insert(format!("{name}_{suffix}"), value);
    set("SERVICE_HOST".to_owned(), address.to_owned());
    set("SERVICE_PORT".to_owned(), first.port.to_string());
    for (at, port) in ports.iter().enumerate() {
        let number = port.port;
        if let Some(port_name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            set(format!("SERVICE_PORT_{}", in_capitals(port_name)), number.to_string());
        }
        let protocol = port
            .protocol
            .as_deref()
            .filter(|name| !name.is_empty())
            .unwrap_or("TCP");
        let scheme = protocol.to_lowercase();
        let host = if address.contains(':') {
            format!("[{address}]")
        } else {
            address.to_owned()
        };
        let url = format!("{scheme}://{host}:{number}");
        if at == 0 {
            set("PORT".to_owned(), url.clone());
        }
        let link = format!("PORT_{number}_{}", protocol.to_uppercase());
        set(link.clone(), url);
        set(format!("{link}_PROTO"), scheme);
        set(format!("{link}_PORT"), number.to_string());
        set(format!("{link}_ADDR"), address.to_owned());
    }
}

fn has_address(service: &Service) -> bool {
    let address = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref());
    address.is_some_and(|address| !address.is_empty() && address != "None")
}

fn in_capitals(name: &str) -> String {
    name.replace('-', "_").to_uppercase()
}
