// Memory at an AXI4 master port, with a monitor of the master.
//
// Answers are in order, LATENCY cycles after the last beat of the request. The memory takes the words of a burst
// after its address. The monitor ends the simulation for a burst that the rules of this file exclude.
`timescale 1ns / 1ps
`ifndef LATENCY
`define LATENCY 20
`endif

module axi_memory #(
    parameter WIDTH = 256,  // bits of a word
    parameter ADDRESS = 40,  // bits of an address
    parameter WORDS = 1024,
    parameter LATENCY = `LATENCY,  // cycles
    parameter BURST = 256,  // longest burst that is allowed, words
    parameter FILE = ""  // words at the start, one a line, hexadecimal
) (
    input clk,
    input arid, input [ADDRESS-1:0] araddr, input [7:0] arlen, input [2:0] arsize, input [1:0] arburst,
    input arvalid, output arready,
    output rid, output reg [WIDTH-1:0] rdata, output [1:0] rresp, output reg rlast, output reg rvalid, input rready,
    input awid, input [ADDRESS-1:0] awaddr, input [7:0] awlen, input [2:0] awsize, input [1:0] awburst,
    input awvalid, output awready,
    input [WIDTH-1:0] wdata, input [WIDTH/8-1:0] wstrb, input wlast, input wvalid, output wready,
    output bid, output [1:0] bresp, output reg bvalid, input bready
);
    localparam BYTES = WIDTH / 8, QUEUE = 256;

    reg [WIDTH-1:0] words[0:WORDS-1];
    reg [ADDRESS-1:0] read_address[0:QUEUE-1], write_address[0:QUEUE-1];
    reg [7:0] read_length[0:QUEUE-1], write_length[0:QUEUE-1];
    integer read_due[0:QUEUE-1], write_due[0:QUEUE-1];
    // Numbers of bursts: requested, answered, and for writes those with all words.
    integer cycle = 0, reads = 0, read = 0, writes = 0, filled = 0, written = 0, beat = 0, word = 0, lane, file;
    integer longest_read = 0, longest_write = 0, most_reads = 0, most_writes = 0, partial = 0;

    wire [ADDRESS-1:0] target = write_address[filled % QUEUE] + word;  // index of the word that is written now

    assign rid = 0;
    assign rresp = 0;
    assign bid = 0;
    assign bresp = 0;
    assign arready = reads - read < QUEUE;
    assign awready = writes - written < QUEUE;
    assign wready = filled < writes;
    initial begin
        rvalid = 0;
        bvalid = 0;
        for (lane = 0; lane < WORDS; lane = lane + 1) words[lane] = 0;
        if (FILE != "") begin
            file = $fopen(FILE, "r");
            for (lane = 0; $fscanf(file, "%h", words[lane]) == 1; lane = lane + 1);
            $fclose(file);
        end
    end

    task check(input good, input [8*40-1:0] rule);
        if (!good) begin
            $display("FAIL: %m: %0s", rule);
            $fatal;
        end
    endtask

    task check_burst(input id, input [ADDRESS-1:0] address, input [7:0] length, input [2:0] size, input [1:0] kind);
        begin
            check(id == 0, "the ID is 0");
            check(kind == 1, "bursts are INCR");
            check(1 << size == BYTES, "beats are whole words");
            check(length < BURST, "a burst is not longer than BURST");
            check(address % BYTES == 0, "addresses are aligned to the word");
            check(address % 4096 + (length + 1) * BYTES <= 4096, "no burst crosses 4 KiB");
            check(address / BYTES + length < WORDS, "addresses are in the memory");
        end
    endtask

    always @(posedge clk) begin
        cycle <= cycle + 1;
        if (arvalid && arready) begin
            check_burst(arid, araddr, arlen, arsize, arburst);
            read_address[reads % QUEUE] <= araddr / BYTES;
            read_length[reads % QUEUE] <= arlen;
            read_due[reads % QUEUE] <= cycle + LATENCY;
            reads <= reads + 1;
            if (arlen + 1 > longest_read) longest_read <= arlen + 1;
            if (reads + 1 - read > most_reads) most_reads <= reads + 1 - read;
        end
        check(rready && bready, "rready and bready are high");
        if (rready || !rvalid) begin
            rvalid <= 0;
            if (read < reads && read_due[read % QUEUE] <= cycle) begin
                rvalid <= 1;
                rdata <= words[read_address[read % QUEUE] + beat];
                rlast <= beat == read_length[read % QUEUE];
                beat <= beat == read_length[read % QUEUE] ? 0 : beat + 1;
                if (beat == read_length[read % QUEUE]) read <= read + 1;
            end
        end
        if (awvalid && awready) begin
            check_burst(awid, awaddr, awlen, awsize, awburst);
            write_address[writes % QUEUE] <= awaddr / BYTES;
            write_length[writes % QUEUE] <= awlen;
            writes <= writes + 1;
            if (awlen + 1 > longest_write) longest_write <= awlen + 1;
            if (writes + 1 - written > most_writes) most_writes <= writes + 1 - written;
        end
        if (wvalid && wready) begin
            check(wlast == (word == write_length[filled % QUEUE]), "wlast marks the last word");
            for (lane = 0; lane < BYTES; lane = lane + 1)
                if (wstrb[lane]) words[target][8*lane+:8] <= wdata[8*lane+:8];
            if (!(&wstrb)) partial <= partial + 1;
            word <= wlast ? 0 : word + 1;
            if (wlast) begin
                filled <= filled + 1;
                write_due[filled % QUEUE] <= cycle + LATENCY;
            end
        end
        if (bready || !bvalid) begin
            bvalid <= written < filled && write_due[written % QUEUE] <= cycle;
            if (written < filled && write_due[written % QUEUE] <= cycle) written <= written + 1;
        end
    end

    task report;
        begin
            if (reads) $display("%m: reads: %0d bursts, at most %0d words, %0d in flight", reads, longest_read,
                                most_reads);
            if (writes) $display("%m: writes: %0d bursts, at most %0d words, %0d in flight, %0d partial words",
                                 writes, longest_write, most_writes, partial);
        end
    endtask
endmodule
