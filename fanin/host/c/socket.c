/* Request for compression by NICs, on an existing socket (the paper's figure 11). */
#include "fanin.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { TOS_COMPRESSIBLE = 0x28, VALUE_BYTES = 4 };

int fanin_compressed(int socket, int mss) {
    int tos = TOS_COMPRESSIBLE;
    if (mss < 0 || mss % VALUE_BYTES) {
        errno = EINVAL;
        return -1;
    }
    if (mss && setsockopt(socket, IPPROTO_TCP, TCP_MAXSEG, &mss, sizeof mss)) return -1;
    return setsockopt(socket, IPPROTO_IP, IP_TOS, &tos, sizeof tos);
}
