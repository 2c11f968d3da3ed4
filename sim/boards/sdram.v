// SDR SDRAM chips with bursts of one word; times are in cycles of their clock. A broken rule of the chips stops the
// simulation with a message that names the rule. Source: data sheet of the M12L64322A; JEDEC 21-C.
module fanin_sdram #(
  parameter BANKS = 4, ROWS = 2048, COLUMNS = 256,
  parameter ACTIVATE_TO_ACCESS = 1, ACTIVATE_TO_PRECHARGE = 3, ACTIVATE_TO_ACTIVATE = 4, ACTIVATE_TO_OTHER = 1,
  parameter PRECHARGE = 1, REFRESH_CYCLE = 4, WRITE_TO_PRECHARGE = 2, MODE = 2,
  parameter REFRESH = 780,          // cycles between refreshes, on average
  parameter START = 10000,          // cycles before the first command
  parameter START_REFRESHES = 2
)(
  input clk, ras_n, cas_n, we_n, input [$clog2(BANKS)-1:0] ba, input [$clog2(ROWS)-1:0] a,
  input [31:0] dq_i, input driven,  // the controller's data, and whether it drives the bus
  output [31:0] dq_o
);
  localparam POSTPONED = 8;         // refreshes that may be postponed
  localparam BITS = $clog2(BANKS), ROW = $clog2(ROWS), COLUMN = $clog2(COLUMNS);

  reg [31:0] memory [0:BANKS*ROWS*COLUMNS-1];
  reg [63:0] now, activated [0:BANKS-1], precharged [0:BANKS-1], written [0:BANKS-1], any_activated, refreshed, mode_set;
  reg [ROW-1:0] row [0:BANKS-1];
  reg [BANKS-1:0] open;
  reg [31:0] early, late;
  reg early_valid, late_valid, configured;
  integer bank, refreshes, debt;  // debt: cycles not yet covered by refreshes
  localparam [63:0] LONG_AGO = 64'd1000;
  initial begin
    now = LONG_AGO;
    {open, early_valid, late_valid, configured, any_activated, refreshed, mode_set} = 0;
    {early, late} = 0;
    refreshes = 0;
    debt = 0;
    for (bank = 0; bank < BANKS; bank = bank + 1) begin
      activated[bank] = 0;
      precharged[bank] = 0;
      written[bank] = 0;
      row[bank] = 0;
    end
  end

  task automatic rule(input holds, input [32*8-1:0] message);
    if (!holds) begin
      $display("fanin_sdram: %0s, cycle %0d, bank %0d", message, now - LONG_AGO, ba);
      $fatal;
    end
  endtask

  function automatic idle_for(input [63:0] cycles);
    idle_for = 1;
    for (bank = 0; bank < BANKS; bank = bank + 1)
      if (open[bank] || now - precharged[bank] < cycles) idle_for = 0;
  endfunction

  assign dq_o = late;
  wire [BITS+ROW+COLUMN-1:0] place = {row[ba], ba, a[COLUMN-1:0]};
  wire [2:0] command = {ras_n, cas_n, we_n};
  always @(posedge clk) begin
    now <= now + 1;
    {late, late_valid} <= {early, early_valid};
    early_valid <= 0;
    if (configured) debt <= debt + 1;
    rule(debt < POSTPONED * REFRESH, "refreshes are missing");
    rule(!(late_valid && driven), "both drive the bus");
    if (command != 3'b111) begin
      rule(now - LONG_AGO >= START, "a command before the start");
      rule(now - refreshed >= REFRESH_CYCLE, "a command within a refresh");
      rule(now - mode_set >= MODE, "a command behind the mode");
    end
    case (command)
      3'b011: begin  // activate
        rule(configured, "no mode was set");
        rule(!open[ba], "activate: the bank is open");
        rule(now - precharged[ba] >= PRECHARGE, "activate: tRP");
        rule(now - activated[ba] >= ACTIVATE_TO_ACTIVATE, "activate: tRC");
        rule(now - any_activated >= ACTIVATE_TO_OTHER, "activate: tRRD");
        open[ba] <= 1;
        row[ba] <= a;
        activated[ba] <= now;
        any_activated <= now;
      end
      3'b101, 3'b100: begin  // read, write
        rule(open[ba], "access: the bank is closed");
        rule(now - activated[ba] >= ACTIVATE_TO_ACCESS, "access: tRCD");
        rule(!a[10], "access: with auto-precharge");
        rule(driven == !we_n, "access: the bus's driver");
        if (we_n) {early, early_valid} <= {memory[place], 1'b1};
        else begin
          memory[place] <= dq_i;
          written[ba] <= now;
        end
      end
      3'b010: begin  // precharge
        for (bank = 0; bank < BANKS; bank = bank + 1)
          if (a[10] || bank == {{(32-BITS){1'b0}}, ba}) begin
            rule(!open[bank] || now - activated[bank] >= ACTIVATE_TO_PRECHARGE, "precharge: tRAS");
            rule(!open[bank] || now - written[bank] >= WRITE_TO_PRECHARGE, "precharge: tWR");
            open[bank] <= 0;
            precharged[bank] <= now;
          end
      end
      3'b001: begin  // refresh
        rule(idle_for(PRECHARGE), "refresh: a bank is open");
        refreshes <= refreshes + 1;
        refreshed <= now;
        debt <= debt < REFRESH ? 0 : debt - REFRESH + 1;
      end
      3'b000: begin  // mode register
        rule(idle_for(PRECHARGE), "mode: a bank is open");
        rule(refreshes >= START_REFRESHES, "mode: refreshes before it");
        rule(a == 2 << 4 && ba == 0, "mode: not latency 2, one word");
        configured <= 1;
        mode_set <= now;
      end
      3'b110: rule(0, "burst stop");
      default: ;
    endcase
  end
endmodule
