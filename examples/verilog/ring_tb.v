// Two ring nodes back to back: each ends with the sum of both nodes' vectors.
`timescale 1ns / 1ps

// A ring node with its memory and its host.
module station #(parameter RANK = 0, parameter FILE = "") (
    input clk, input rst,
    output [255:0] tx_data, output [31:0] tx_keep, output tx_last, output tx_valid, input tx_ready,
    input [255:0] rx_data, input [31:0] rx_keep, input rx_last, input rx_valid, output rx_ready
);
    `include "ring_node.vh"
    `include "ring_node_instance.vh"

    assign tx_data = mac_tx_tdata, tx_keep = mac_tx_tkeep, tx_last = mac_tx_tlast, tx_valid = mac_tx_tvalid;
    assign mac_rx_tdata = rx_data, mac_rx_tkeep = rx_keep, mac_rx_tlast = rx_last, mac_rx_tvalid = rx_valid;
    assign mac_tx_tready = tx_ready, rx_ready = mac_rx_tready, mac_rx_tuser = 0;  // no frame is bad

    host host (
        .clk(clk), .awaddr(axil_awaddr), .awprot(axil_awprot), .awvalid(axil_awvalid), .awready(axil_awready),
        .wdata(axil_wdata), .wstrb(axil_wstrb), .wvalid(axil_wvalid), .wready(axil_wready), .bresp(axil_bresp),
        .bvalid(axil_bvalid), .bready(axil_bready), .araddr(axil_araddr), .arprot(axil_arprot),
        .arvalid(axil_arvalid), .arready(axil_arready), .rdata(axil_rdata), .rresp(axil_rresp),
        .rvalid(axil_rvalid), .rready(axil_rready)
    );
    axi_memory #(.WIDTH(256), .WORDS(64), .FILE(FILE)) memory (
        .clk(clk), .arid(memory_arid), .araddr(memory_araddr), .arlen(memory_arlen), .arsize(memory_arsize),
        .arburst(memory_arburst), .arvalid(memory_arvalid), .arready(memory_arready), .rid(memory_rid),
        .rdata(memory_rdata), .rresp(memory_rresp), .rlast(memory_rlast), .rvalid(memory_rvalid),
        .rready(memory_rready), .awid(memory_awid), .awaddr(memory_awaddr), .awlen(memory_awlen),
        .awsize(memory_awsize), .awburst(memory_awburst), .awvalid(memory_awvalid), .awready(memory_awready),
        .wdata(memory_wdata), .wstrb(memory_wstrb), .wlast(memory_wlast), .wvalid(memory_wvalid),
        .wready(memory_wready), .bid(memory_bid), .bresp(memory_bresp), .bvalid(memory_bvalid),
        .bready(memory_bready)
    );

    localparam [47:0] MAC = 48'h02_00_00_00_00_00;  // of rank 0; the next rank has the next address

    task begin_job(input [7:0] job);
        begin
            host.expect_word(RING_NODE_ID_OFFSET, RING_NODE_ID_RESET);
            host.expect_word(RING_NODE_VERSION_OFFSET, RING_NODE_VERSION_RESET);
            host.write(RING_NODE_JOB_OFFSET, job << RING_NODE_JOB_JOB_ID_SHIFT | 2 << RING_NODE_JOB_NODES_SHIFT
                       | RANK << RING_NODE_JOB_RANK_SHIFT);
            host.write64(RING_NODE_OWN_MAC_OFFSET, MAC + RANK);
            host.write64(RING_NODE_PREVIOUS_MAC_OFFSET, MAC + 1 - RANK);  // of two nodes the other is both
            host.write64(RING_NODE_NEXT_MAC_OFFSET, MAC + 1 - RANK);
            host.write(RING_NODE_CONTROL_OFFSET, RING_NODE_CONTROL_START_MASK);
            host.poll(RING_NODE_STATUS_OFFSET, RING_NODE_STATUS_BUSY_MASK, 0);
            host.expect_word(RING_NODE_STATUS_OFFSET, RING_NODE_STATUS_RUNNING_MASK);
        end
    endtask

    task reduce(input [63:0] address, input [31:0] count);
        begin
            host.write64(RING_NODE_ADDRESS_OFFSET, address);
            host.write(RING_NODE_COUNT_OFFSET, count);
            host.write(RING_NODE_POST_OFFSET, RING_NODE_POST_POST_DESCRIPTOR_MASK);
            host.poll(RING_NODE_STATUS_OFFSET, RING_NODE_STATUS_BUSY_MASK, 0);
            host.expect_word(RING_NODE_STATUS_OFFSET, RING_NODE_STATUS_RUNNING_MASK | 1 << 7);  // completed_low: 1
        end
    endtask
endmodule

module ring_tb;
    localparam COUNT = 100, WORDS = (COUNT + 7) / 8;  // values of 4 bytes; words of 8 values, the last one in part

    reg clk = 0, rst = 1;
    always #2 clk = !clk;
    integer cycle = 0, n;
    always @(posedge clk) cycle <= cycle + 1;

    wire [255:0] data_0, data_1;
    wire [31:0] keep_0, keep_1;
    wire last_0, last_1, valid_0, valid_1, ready_0, ready_1;
    station #(.RANK(0), .FILE("ring_0.hex")) rank_0 (clk, rst, data_0, keep_0, last_0, valid_0, ready_0,
                                                     data_1, keep_1, last_1, valid_1, ready_1);
    station #(.RANK(1), .FILE("ring_1.hex")) rank_1 (clk, rst, data_1, keep_1, last_1, valid_1, ready_1,
                                                     data_0, keep_0, last_0, valid_0, ready_0);

    reg [255:0] sum[0:WORDS-1];
    initial begin
        $readmemh("ring_sum.hex", sum);
        repeat (4) @(negedge clk);
        rst = 0;
        fork
            rank_0.begin_job(1);
            rank_1.begin_job(1);
        join
        $display("cycle %0d: the job runs", cycle);
        fork
            rank_0.reduce(0, COUNT);
            rank_1.reduce(0, COUNT);
        join
        $display("cycle %0d: both sums are in memory", cycle);
        for (n = 0; n < WORDS; n = n + 1)
            if (rank_0.memory.words[n] != sum[n] || rank_1.memory.words[n] != sum[n]) begin
                $display("FAIL: word %0d is %h and %h, not %h", n, rank_0.memory.words[n], rank_1.memory.words[n],
                         sum[n]);
                $fatal;
            end
        rank_0.memory.report;
        $display("PASS");
        $finish;
    end

    initial begin
        repeat (20000) @(posedge clk);
        $display("FAIL: 20,000 cycles have passed");
        $fatal;
    end
endmodule
