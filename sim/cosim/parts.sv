// Parts of the simulated top: memories, host, MACs, event trace, protocol checks.
//
// Nodes are clocked by the rising edge. Inputs of MAC streams change at the falling edge, so that an answer to a frame
// of a rising edge is on the wire before the next rising edge.
// All data are on the C++ side (dpi.cpp): no size is a build parameter.
`timescale 1ps/1ps

// Monitor of the stream contract: valid and payload hold until ready.
module fanin_hold #(parameter int NODE = 0, parameter string NAME = "", parameter int WIDTH = 1) (
    input bit clk, input bit rst, input bit valid, input bit ready, input bit [WIDTH-1:0] payload
);
  import "DPI-C" function void fanin_violation(input int node, input string name, input string text);
  bit waiting = 0;
  bit [WIDTH-1:0] held;
  always @(posedge clk) begin
    if (waiting && !valid) fanin_violation(NODE, NAME, "valid withdrawn before ready");
    if (waiting && valid && payload != held) fanin_violation(NODE, NAME, "payload changed before ready");
    waiting <= valid && !ready && !rst;
    held <= payload;
  end
endmodule

// AXI4 read slave: INCR bursts in order. The first beat comes ``latency`` cycles after its address, then one a cycle;
// or each word when it arrives from HBM (hbm.cpp).
module fanin_memory #(
    parameter int NODE = 0, parameter int PORT = 0, parameter int ADDRESS = 64, parameter int WIDTH = 256,
    parameter int ID = 1
) (
    input bit clk, input bit rst, input longint next_edge,  // number of the next rising edge
    input int latency, input int rate,
    input bit [ID-1:0] arid, input bit [ADDRESS-1:0] araddr, input bit [7:0] arlen,
    input bit arvalid, output bit arready,
    output bit [ID-1:0] rid, output bit [WIDTH-1:0] rdata, output bit [1:0] rresp, output bit rlast, output bit rvalid, input bit rready
);
  localparam int SHARE = 256;  // bits per DPI call; small, since DPI copies each bit several times
  import "DPI-C" function void fanin_read(
      input int node, input int port, input longint address, input int bytes, output bit [SHARE-1:0] data);
  import "DPI-C" function bit fanin_hbm_used();
  import "DPI-C" function void fanin_hbm_burst(
      input int node, input int port, input longint address, input int beats, input int word_bytes,
      input longint next_edge);
  import "DPI-C" function bit fanin_hbm_word(input int node, input int port, input bit taken, input longint next_edge);
  localparam int DEPTH = 64;  // bursts under way
  localparam int SHARES = (WIDTH + SHARE - 1) / SHARE;
  typedef struct packed { bit [ID-1:0] id; bit [63:0] address; bit [7:0] beats; bit [31:0] due; } burst_t;
  burst_t bursts[DEPTH];
  bit [5:0] head = 0, tail = 0;
  bit [7:0] beat = 0;
  wire [31:0] now = 32'(next_edge);
  burst_t current;
  assign current = bursts[head];
  bit hbm = 0, arrived = 0, taken = 0;  // arrived: HBM has the next word by next_edge; taken: at the last edge
  initial hbm = fanin_hbm_used();
  always @(negedge clk) if (hbm) arrived <= fanin_hbm_word(NODE, PORT, taken, next_edge);
  wire due = hbm ? arrived : $signed(now - current.due) >= 0;
  wire free = !rvalid || rready;
  wire paid;
  fanin_memory_rate #(.WIDTH(WIDTH)) pace (.clk(clk), .rst(rst), .rate(rate), .take(take), .paid(paid));
  wire take = free && head != tail && due && paid;
  wire last = beat == current.beats;
  bit [SHARE-1:0] share;
  bit [SHARES*SHARE-1:0] word;
  assign rresp = 0;
  always @(posedge clk) begin
    arready <= 6'(tail + 2) != head && 6'(tail + 1) != head;
    taken <= take;
    if (arvalid && arready) begin
      if (hbm) fanin_hbm_burst(NODE, PORT, 64'(araddr), 32'(arlen) + 1, WIDTH / 8, next_edge);
      bursts[tail] <= '{id: arid, address: 64'(araddr), beats: arlen, due: now + latency};
      tail <= tail + 1;
    end
    if (free) rvalid <= take;
    if (take) begin
      for (int i = 0; i < SHARES; i++) begin
        fanin_read(NODE, PORT, current.address + beat * (WIDTH / 8) + i * (SHARE / 8),
                   WIDTH < SHARE ? WIDTH / 8 : SHARE / 8, share);
        word[i*SHARE +: SHARE] = share;
      end
      rdata <= word[WIDTH-1:0];
      rlast <= last;
      rid <= current.id;
      beat <= last ? 0 : beat + 1;
      if (last) head <= head + 1;
    end
    if (rst) begin
      head <= 0;
      tail <= 0;
      beat <= 0;
      rvalid <= 0;
      arready <= 0;
    end
  end
endmodule

// Rate limiter of a memory port, like PCIe's: ``paid`` allows one more word. ``rate`` is in 1/65536 bytes a cycle; 0:
// no limit.
module fanin_memory_rate #(parameter int WIDTH = 256) (
    input bit clk, input bit rst, input int rate, input bit take, output bit paid
);
  longint credit = 0, remaining;
  assign paid = rate == 0 || credit >= 0;
  always @(posedge clk) begin
    remaining = credit + 64'(rate) - (take ? 65536 * WIDTH / 8 : 0);
    credit <= rst || rate == 0 ? 0 : remaining > 64'(rate) ? 64'(rate) : remaining;
  end
endmodule

// AXI4 write slave: accepts a burst's words after its address, one a cycle; responds ``latency`` cycles after the last.
module fanin_memory_write #(
    parameter int NODE = 0, parameter int PORT = 0, parameter int ADDRESS = 64, parameter int WIDTH = 256,
    parameter int ID = 1
) (
    input bit clk, input bit rst, input int latency, input int rate,
    input bit [ID-1:0] awid, input bit [ADDRESS-1:0] awaddr, input bit [7:0] awlen,
    input bit awvalid, output bit awready,
    input bit [WIDTH-1:0] wdata, input bit [WIDTH/8-1:0] wstrb, input bit wlast, input bit wvalid, output bit wready,
    output bit [ID-1:0] bid, output bit [1:0] bresp, output bit bvalid, input bit bready
);
  localparam int SHARE = 256;  // bits per DPI call, as in fanin_memory
  import "DPI-C" function void fanin_write(
      input int node, input int port, input longint address, input int bytes, input bit [SHARE-1:0] data,
      input bit [SHARE/8-1:0] strobes);
  import "DPI-C" function void fanin_violation(input int node, input string name, input string text);
  localparam int DEPTH = 64;  // bursts under way
  localparam int SHARES = (WIDTH + SHARE - 1) / SHARE;
  typedef struct packed { bit [ID-1:0] id; bit [63:0] address; bit [7:0] beats; } burst_t;
  typedef struct packed { bit [ID-1:0] id; bit [31:0] due; } answer_t;
  burst_t bursts[DEPTH];
  answer_t answers[DEPTH];
  bit [5:0] head = 0, tail = 0, answered = 0;  // bursts[head..tail) wait for words, answers[answered..head) for B
  bit [7:0] beat = 0;
  bit [31:0] now = 0;
  burst_t current;
  assign current = bursts[head];
  wire paid;
  fanin_memory_rate #(.WIDTH(WIDTH)) pace (
    .clk(clk), .rst(rst), .rate(rate), .take(wvalid && wready), .paid(paid)
  );
  assign wready = head != tail && paid;
  wire last = beat == current.beats;
  wire due = answered != head && $signed(now - answers[answered].due) >= 0;
  bit [SHARES*SHARE-1:0] word;
  bit [SHARES*SHARE/8-1:0] strobes;
  assign word = (SHARES*SHARE)'(wdata);
  assign strobes = (SHARES*SHARE/8)'(wstrb);
  assign bresp = 0;
  always @(posedge clk) begin
    now <= now + 1;
    awready <= 6'(tail + 2) != answered && 6'(tail + 1) != answered;
    if (awvalid && awready) begin
      bursts[tail] <= '{id: awid, address: 64'(awaddr), beats: awlen};
      tail <= tail + 1;
    end
    if (wvalid && wready) begin
      for (int i = 0; i < SHARES; i++)
        fanin_write(NODE, PORT, current.address + beat * (WIDTH / 8) + i * (SHARE / 8),
                    WIDTH < SHARE ? WIDTH / 8 : SHARE / 8, word[i*SHARE +: SHARE], strobes[i*SHARE/8 +: SHARE/8]);
      if (wlast != last) fanin_violation(NODE, "w", "wlast is not at the end of its burst");
      beat <= last ? 0 : beat + 1;
      if (last) begin
        answers[head] <= '{id: current.id, due: now + latency};
        head <= head + 1;
      end
    end
    if (!bvalid || bready) begin
      bvalid <= due;
      if (due) begin
        bid <= answers[answered].id;
        answered <= answered + 1;
      end
    end
    if (rst) begin
      head <= 0;
      tail <= 0;
      answered <= 0;
      beat <= 0;
      bvalid <= 0;
      awready <= 0;
    end
  end
endmodule

// AXI4-Lite master: carries out the operations of a host program, from fanin_host_next, one at a time.
module fanin_host #(parameter int NODE = 0, parameter int ADDRESS = 32) (
    input bit clk, input bit rst,
    output bit [ADDRESS-1:0] awaddr, output bit awvalid, input bit awready,
    output bit [31:0] wdata, output bit wvalid, input bit wready,
    input bit [1:0] bresp, input bit bvalid, output bit bready,
    output bit [ADDRESS-1:0] araddr, output bit arvalid, input bit arready,
    input bit [31:0] rdata, input bit [1:0] rresp, input bit rvalid, output bit rready
);
  // 0 nothing to do, 1 write, 2 read
  import "DPI-C" function int fanin_host_next(input int node, output int address, output int data);
  import "DPI-C" function void fanin_host_done(input int node, input int data, input int response);
  bit busy = 0;
  int operation, address, data;
  always @(posedge clk) begin
    bready <= 1;
    rready <= 1;
    if (awready) awvalid <= 0;
    if (wready) wvalid <= 0;
    if (arready) arvalid <= 0;
    if (bvalid && bready && busy) fanin_host_done(NODE, 0, 32'(bresp));
    if (rvalid && rready && busy) fanin_host_done(NODE, rdata, 32'(rresp));
    if (!busy || (bvalid && bready) || (rvalid && rready)) begin
      operation = rst ? 0 : fanin_host_next(NODE, address, data);
      busy <= operation != 0;
      awvalid <= operation == 1;
      wvalid <= operation == 1;
      arvalid <= operation == 2;
      awaddr <= ADDRESS'(address);
      araddr <= ADDRESS'(address);
      wdata <= data;
    end
  end
endmodule

// Source of the frames for a node (from fanin_beat_in), each without a pause inside. PORT: 0: its MAC, 1: its host.
module fanin_source #(parameter int NODE = 0, parameter int PORT = 0, parameter int WIDTH = 512) (
    input bit clk, input bit rst, input longint next_edge,  // number of the next rising edge
    output bit [WIDTH-1:0] data, output bit [WIDTH/8-1:0] keep, output bit last, output bit error,
    output bit valid, input bit ready
);
  import "DPI-C" function int fanin_beat_in(  // bit 0 a beat, bit 1 last, bit 2 error
      input int node, input int port, output bit [511:0] data, output bit [63:0] keep, input int bytes,
      input longint next_edge);
  import "DPI-C" function void fanin_frame_taken(input int node, input int port);
  bit taken = 0;
  int beat;
  bit [511:0] beat_data;
  bit [63:0] beat_keep;
  always @(posedge clk) begin
    if (valid && ready && last) fanin_frame_taken(NODE, PORT);
    taken <= valid && ready;
  end
  always @(negedge clk)
    if (!rst && (taken || !valid)) begin
      beat = fanin_beat_in(NODE, PORT, beat_data, beat_keep, WIDTH / 8, next_edge);
      valid <= beat[0];
      last <= beat[1];
      error <= beat[2];
      if (beat[0]) begin
        data <= beat_data[WIDTH-1:0];
        keep <= beat_keep[WIDTH/8-1:0];
      end
    end
endmodule

// Sink of the frames from a node to its host; ``ready`` is low in stalled cycles.
module fanin_host_sink #(parameter int NODE = 0, parameter int WIDTH = 512) (
    input bit clk, input bit rst,
    input bit [WIDTH-1:0] data, input bit [WIDTH/8-1:0] keep, input bit last, input bit valid, output bit ready
);
  import "DPI-C" function void fanin_beat_out(
      input int node, input int port, input bit [511:0] data, input bit [63:0] keep, input bit last, input int bytes);
  import "DPI-C" function bit fanin_host_takes(input int node);
  always @(posedge clk)
    if (valid && ready && !rst) fanin_beat_out(NODE, 1, 512'(data), 64'(keep), last, WIDTH / 8);
  always @(negedge clk) ready <= fanin_host_takes(NODE);
endmodule

// Transmitter of a MAC: accepts a frame without a pause inside, a beat a cycle. ``rate`` is in 1/65536 bytes a cycle;
// 0: no limit. With a rate, the next frame is accepted once the last one has left: padded, with preamble, FCS and gap.
module fanin_mac_tx #(parameter int NODE = 0, parameter int WIDTH = 512) (
    input bit clk, input bit rst, input longint next_edge,  // number of the next rising edge
    input int rate,
    input bit [WIDTH-1:0] data, input bit [WIDTH/8-1:0] keep, input bit last, input bit valid, output bit ready,
    output bit frame_out  // the last beat of a frame leaves at the next edge
);
  import "DPI-C" function void fanin_beat_out(
      input int node, input int port, input bit [511:0] data, input bit [63:0] keep, input bit last, input int bytes);
  import "DPI-C" function void fanin_violation(input int node, input string name, input string text);
  import "DPI-C" function void fanin_occupied(input int node, input bit occupied, input longint next_edge);
  localparam int OVERHEAD = 24;  // bytes of preamble, FCS and gap
  localparam int MIN_BYTES = 60;  // of a frame without FCS
  bit open = 0, occupied = 0;
  longint debt = 0;  // backlog of the link, in 1/65536 bytes; negative: the link has been idle for that many
  wire accept = valid && ready;
  wire busy = accept || debt > 0;
  int size = 0;  // bytes of a frame so far
  longint next_debt;
  assign ready = open || rate == 0 || debt <= 0;
  assign frame_out = accept && last && !rst;
  always @(posedge clk) begin
    if (open && !valid) fanin_violation(NODE, "mac_tx", "a frame pauses inside");
    if (accept || rst) open <= accept && !last && !rst;
    if (accept && !rst) fanin_beat_out(NODE, 0, 512'(data), 64'(keep), last, WIDTH / 8);
    if (!rst && busy != occupied) fanin_occupied(NODE, busy, next_edge);
    if (!rst) occupied <= busy;
    next_debt = debt - 64'(rate);
    if (accept) size += $countones(keep);
    if (accept && last) begin
      next_debt += 65536 * (OVERHEAD + (size < MIN_BYTES ? MIN_BYTES : size));
      if (next_debt < -64'(rate)) next_debt = -64'(rate);  // the beats were slower than the link
      size = 0;
    end
    debt <= rst || rate == 0 || !busy ? 0 : next_debt;
  end
endmodule

// Event trace: records the events of a node in each cycle.
module fanin_events #(parameter int NODE = 0, parameter int WIDTH = 1) (input bit clk, input bit [WIDTH-1:0] events);
  import "DPI-C" function void fanin_event(input int node, input longint events);
  always @(posedge clk) if (events != 0) fanin_event(NODE, 64'(events));
endmodule
