// The declarations of P4_16's core library: what its specification names, no more.
#ifndef _CORE_P4_
#define _CORE_P4_

error { NoError, PacketTooShort, NoMatch, StackOutOfBounds, HeaderTooShort, ParserTimeout, ParserInvalidArgument }

match_kind { exact, ternary, lpm }

extern packet_in {
    void extract<T>(out T data);
    void extract<T>(out T data, in bit<32> variable_bits);
    T lookahead<T>();
    void advance(in bit<32> bits);
    bit<32> length();
}

extern packet_out {
    void emit<T>(in T data);
}

extern void verify(in bool condition, in error otherwise);
extern bool static_assert(bool condition, string message);
extern bool static_assert(bool condition);

action NoAction() {}

#endif
