// An IPv4 router: the longest prefix decides the port and the next station; see README.md.
#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> kind;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  words;
    bit<8>  tos;
    bit<16> length;
    bit<16> identification;
    bit<16> fragment;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

struct Headers {
    ethernet_t ethernet;
    ipv4_t     ipv4;
}

struct Metadata {}

parser Parse(packet_in packet, out Headers hdr, inout Metadata meta, inout standard_metadata_t std) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control Check(inout Headers hdr, inout Metadata meta) {
    apply {}
}

control Router(inout Headers hdr, inout Metadata meta, inout standard_metadata_t std) {
    counter(8, CounterType.packets) arrived;

    action drop() {
        mark_to_drop(std);
    }
    action forward(bit<48> to, bit<9> port) {
        std.egress_spec = port;
        hdr.ethernet.source = hdr.ethernet.destination;
        hdr.ethernet.destination = to;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }
    table route {
        key = { hdr.ipv4.destination: lpm; }
        actions = { forward; drop; }
        default_action = drop();
    }
    apply {
        arrived.count((bit<32>) std.ingress_port);
        if (hdr.ipv4.isValid() && hdr.ipv4.words == 5 && hdr.ipv4.ttl > 1) {
            route.apply();
        } else {
            drop();
        }
    }
}

control Leave(inout Headers hdr, inout Metadata meta, inout standard_metadata_t std) {
    apply {}
}

control Compute(inout Headers hdr, inout Metadata meta) {
    apply {
        update_checksum(
            hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.words, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.identification,
              hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control Deparse(packet_out packet, in Headers hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
    }
}

V1Switch(Parse(), Check(), Router(), Leave(), Compute(), Deparse()) main;
